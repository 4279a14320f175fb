// Copyright 2026 The llm_failover Authors
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package llmfailover

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gauge is one of a pool's gauges.
type gauge int

const (
	gaugeKey gauge = iota
	gaugeFree
	gaugeHalt
	gaugeCooldown
	gaugeCircuit
	gaugeInFlight
	gaugeHeadroom
	gaugeBudget
	gaugeServing
	gaugeQueue
	gaugeHeld
)

var gauges = [...]struct {
	name, help string
	labels     []string
}{
	gaugeKey:      {"key_status", "1 for the status that a key has: available, cooling, open, half_open, rejected or disabled.", []string{labelProvider, labelKey, "status"}},
	gaugeFree:     {"key_free", "1 if a request may ask the key now, whatever else it is; 0: something stands in its way.", []string{labelProvider, labelKey}},
	gaugeHalt:     {"halt_seconds", "Seconds until a halt of a provider (without account) or an account is over; 0: none.", []string{labelProvider, "account"}},
	gaugeCooldown: {"key_cooldown_seconds", "Seconds until a key that asked, or whose account did, to be left alone may be asked again; 0: now.", []string{labelProvider, labelKey}},
	gaugeCircuit:  {"circuit_failures", "Faults in a row that a key's circuit has counted.", []string{labelProvider, labelKey}},
	gaugeInFlight: {"calls_in_flight", "Upstream calls under way.", []string{labelProvider, labelKey}},
	gaugeHeadroom: {"headroom_remaining", "What the newest answer said is left of a key's limit.", []string{labelProvider, labelKey, "limit"}},
	gaugeBudget:   {"retry_budget_tokens", "Retries that are left of a provider's budget.", []string{labelProvider}},
	gaugeServing:  {"requests_in_flight", "Requests that the pool's limit has let through; without a limit none is counted.", nil},
	gaugeQueue:    {"queue_length", "Requests that wait for the pool's limit.", nil},
	gaugeHeld:     {"held_bytes", "Bytes of request bodies that are held.", nil},
}

var gaugeDescs = func() (descs [len(gauges)]*prometheus.Desc) {
	for i, g := range gauges {
		descs[i] = prometheus.NewDesc(namespace+g.name, g.help, append([]string{labelPool}, g.labels...), nil)
	}
	return descs
}()

// collector tells the counters of all pools that run, and gauges that are read from what is known at the time of asking.
type collector struct{}

// registerMetrics adds the collector to a config's registry, unless that has it. Whatever of a config comes first does
// it: after a config that failed, Caddy's admin endpoint keeps that one's registry.
func registerMetrics(config *prometheus.Registry) error {
	if config == nil { // no config runs: a test, or a simulation
		return nil
	}
	var already prometheus.AlreadyRegisteredError
	if err := config.Register(collector{}); err != nil && !errors.As(err, &already) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	all := slices.Concat(newCounters("").all(), newKeyCounters("", "", "").all(), []prometheus.Collector{newTokens("", "")})
	for _, c := range all {
		c.Describe(ch)
	}
	for _, d := range gaugeDescs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range pools.all() {
		for _, c := range p.collectors() {
			c.Collect(ch)
		}
		p.collect(ch)
	}
}

// collectors are the counters of a pool, and of those providers, models and keys that its config names.
func (p *pool) collectors() []prometheus.Collector {
	all := p.counters.all()
	for _, pr := range p.providers {
		for _, t := range pr.tokens {
			all = append(all, t.input, t.output)
		}
		for _, c := range pr.keys {
			all = append(all, c.counters.all()...)
		}
	}
	return all
}

// statuses are those of keys, as the admin API names them.
var statuses = [...]string{"available", "cooling", circuitOpen, circuitHalfOpen, "rejected", "disabled"}

// collect tells a pool's gauges.
func (p *pool) collect(ch chan<- prometheus.Metric) {
	now := p.clock.Now()
	tell := func(g gauge, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(gaugeDescs[g], prometheus.GaugeValue, value, append([]string{p.name}, labels...)...)
	}
	for _, pr := range p.providers {
		tell(gaugeBudget, pr.facts.budget.left(p.policy.budget, now), pr.name)
		tell(gaugeHalt, pr.facts.look().left(now), pr.name, "")
		for _, a := range pr.accounts {
			b := a.facts.look()
			if b.strikes == 0 { // it merely cools
				b = bench{}
			}
			tell(gaugeHalt, b.left(now), pr.name, a.name)
		}
		for _, c := range pr.keys {
			v := c.view(now)
			for _, status := range statuses {
				tell(gaugeKey, oneIf(v.Status == status), pr.name, c.name, status)
			}
			tell(gaugeFree, oneIf(c.look("", nil, now).obstacle == free), pr.name, c.name)
			cooldown := 0.0
			if v.Cooldown != nil {
				cooldown = float64(v.Cooldown.Remaining) / 1000
			}
			if b := c.account.facts.look(); b.strikes == 0 {
				cooldown = max(cooldown, b.left(now))
			}
			tell(gaugeCooldown, cooldown, pr.name, c.name)
			tell(gaugeCircuit, float64(v.Circuit.Failures), pr.name, c.name)
			tell(gaugeInFlight, float64(v.InFlight), pr.name, c.name)
			for limit, h := range v.Headroom {
				tell(gaugeHeadroom, float64(h.Remaining), pr.name, c.name, limit)
			}
		}
	}
	serving, queued := p.gate.counts()
	tell(gaugeServing, float64(serving))
	tell(gaugeQueue, float64(queued))
	tell(gaugeHeld, float64(p.heldBytes.Load()))
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// left is how many seconds a bench still lasts.
func (b bench) left(now time.Time) float64 {
	return max(b.until.Sub(now).Seconds(), 0)
}
