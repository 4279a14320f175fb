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
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// outcome is how a request ended, as metrics tell it.
type outcome string

const (
	outcomeOK       outcome = "ok"
	outcomeFailover outcome = "ok_after_failover"
	outcomeRefused  outcome = "refused"              // without asking anybody
	outcomeFailed   outcome = "failed"               // also where the request itself was at fault
	outcomeBroken   outcome = "failed_after_content" // its caller knows from the cut transfer
	outcomeCanceled outcome = "canceled"             // the caller left
)

var outcomes = [...]outcome{outcomeOK, outcomeFailover, outcomeRefused, outcomeFailed, outcomeBroken, outcomeCanceled}

// The kinds of waits.
const (
	waitSameKey = "same_key"
	waitBackoff = "backoff"
	waitCooling = "cooling" // for a key that merely cools
	waitQueue   = "queue"
)

// classServed is the class of an attempt that did not fail.
const classServed = "ok"

// Answers of models take from a tenth of a second to minutes; what the gateway adds, some microseconds to milliseconds.
var (
	answerBuckets   = []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320}
	overheadBuckets = []float64{0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1}
)

// counters count what a pool's requests do. They live as long as what is known of the pool, so that a reload sets
// nothing back. All labels are names of the config or of a fixed list.
type counters struct {
	requests  *prometheus.CounterVec
	attempts  *prometheus.CounterVec
	failovers *prometheus.CounterVec
	waits     *prometheus.CounterVec
	benches   *prometheus.CounterVec
	tokens    *prometheus.CounterVec
	first     prometheus.Histogram
	whole     prometheus.Histogram
	overhead  prometheus.Histogram

	ended map[outcome]prometheus.Counter // requests, looked up once
}

func newCounters(pool string) *counters {
	labels := prometheus.Labels{"pool": pool}
	vec := func(name, help string, of ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "llm_failover_" + name, Help: help, ConstLabels: labels}, of)
	}
	seconds := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "llm_failover_" + name, Help: help, ConstLabels: labels, Buckets: buckets})
	}
	c := &counters{
		requests:  vec("requests_total", "Requests that have ended, by their outcome.", "outcome"),
		attempts:  vec("attempts_total", "Upstream calls that have been judged, by the class of their failure, or ok.", "provider", "key", "class"),
		failovers: vec("failovers_total", "Times a request moved on from a key, by the class of its failure there.", "provider", "key", "class"),
		waits:     vec("wait_seconds_total", "Seconds that requests waited, by what for.", "kind"),
		benches:   vec("benches_total", "Times something was set aside, by what it was and why.", "provider", "key", "target", "reason"),
		tokens:    vec("tokens_total", "Tokens that answers say they took, by the model's name in the config.", "provider", "model", "type"),
		first:     seconds("first_content_seconds", "Seconds from a request's arrival to the first content for its caller.", answerBuckets),
		whole:     seconds("request_seconds", "Seconds from a request's arrival to its end.", answerBuckets),
		overhead:  seconds("overhead_seconds", "Seconds of a served request, up to its first content, that were neither an upstream's nor a wait.", overheadBuckets),
	}
	c.ended = make(map[outcome]prometheus.Counter)
	for _, o := range outcomes {
		c.ended[o] = c.requests.WithLabelValues(string(o))
	}
	for _, kind := range []string{waitSameKey, waitBackoff, waitCooling, waitQueue} {
		c.waits.WithLabelValues(kind)
	}
	return c
}

func (c *counters) all() []prometheus.Collector {
	return []prometheus.Collector{c.requests, c.attempts, c.failovers, c.waits, c.benches, c.tokens, c.first, c.whole, c.overhead}
}

// metrics is a pool's collector: its counters, and gauges that are read from what is known at the time of asking.
type metrics struct {
	pool   func() *pool // a secret that changes makes another one
	gauges [len(gauges)]*prometheus.Desc
}

// gauge is one of a pool's gauges.
type gauge int

const (
	gaugeKey gauge = iota
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
	gaugeKey:      {"key_status", "1 for the status that a key has: available, cooling, open, half_open, rejected or disabled.", []string{"provider", "key", "status"}},
	gaugeHalt:     {"halt_seconds", "Seconds until a halt of a provider (without account) or an account is over; 0: none.", []string{"provider", "account"}},
	gaugeCooldown: {"key_cooldown_seconds", "Seconds until a key that asked to be left alone may be asked again; 0: now.", []string{"provider", "key"}},
	gaugeCircuit:  {"circuit_failures", "Faults in a row that a key's circuit has counted.", []string{"provider", "key"}},
	gaugeInFlight: {"calls_in_flight", "Upstream calls under way.", []string{"provider", "key"}},
	gaugeHeadroom: {"headroom_remaining", "What the newest answer said is left of a key's limit.", []string{"provider", "key", "limit"}},
	gaugeBudget:   {"retry_budget_tokens", "Retries that are left of a provider's budget.", []string{"provider"}},
	gaugeServing:  {"requests_in_flight", "Requests that the pool's limit has let through; without a limit none is counted.", nil},
	gaugeQueue:    {"queue_length", "Requests that wait for the pool's limit.", nil},
	gaugeHeld:     {"held_bytes", "Bytes of request bodies that are held.", nil},
}

func newMetrics(p *pool) *metrics {
	m := &metrics{pool: func() *pool { return p }}
	for i, g := range gauges {
		m.gauges[i] = prometheus.NewDesc("llm_failover_"+g.name, g.help, g.labels, prometheus.Labels{"pool": p.name})
	}
	return m
}

// register adds the pool to a config's registry, unless another handler of the same pool has: a site with two addresses
// is two of them, and they share what is shown.
func (m *metrics) register(config *prometheus.Registry) error {
	if config == nil { // no config runs: a test, or a simulation
		return nil
	}
	var already prometheus.AlreadyRegisteredError
	if err := config.Register(m); err != nil && !errors.As(err, &already) {
		return err
	}
	return nil
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.pool().counters.all() {
		c.Describe(ch)
	}
	for _, d := range m.gauges {
		ch <- d
	}
}

// statuses are those of keys, as the admin API names them.
var statuses = [...]string{"available", "cooling", circuitOpen, circuitHalfOpen, "rejected", "disabled"}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	pool := m.pool()
	for _, c := range pool.counters.all() {
		c.Collect(ch)
	}
	now := pool.clock.Now()
	tell := func(g gauge, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(m.gauges[g], prometheus.GaugeValue, value, labels...)
	}
	for _, p := range pool.providers {
		tell(gaugeBudget, p.facts.budget.left(pool.policy.budget, now), p.name)
		tell(gaugeHalt, p.facts.look().left(now), p.name, "")
		for _, a := range p.accounts {
			tell(gaugeHalt, a.facts.look().left(now), p.name, a.name)
		}
		for _, c := range p.keys {
			v := c.view(now)
			for _, status := range statuses {
				is := 0.0
				if v.Status == status {
					is = 1
				}
				tell(gaugeKey, is, p.name, c.name, status)
			}
			cooldown := 0.0
			if v.Cooldown != nil {
				cooldown = float64(v.Cooldown.Remaining) / 1000
			}
			tell(gaugeCooldown, cooldown, p.name, c.name)
			tell(gaugeCircuit, float64(v.Circuit.Failures), p.name, c.name)
			tell(gaugeInFlight, float64(v.InFlight), p.name, c.name)
			for limit, h := range v.Headroom {
				tell(gaugeHeadroom, float64(h.Remaining), p.name, c.name, limit)
			}
		}
	}
	serving, queued := pool.gate.counts()
	tell(gaugeServing, float64(serving))
	tell(gaugeQueue, float64(queued))
	tell(gaugeHeld, float64(pool.heldBytes.Load()))
}

// left is how many seconds a bench still lasts.
func (b bench) left(now time.Time) float64 {
	return max(b.until.Sub(now).Seconds(), 0)
}

// tokenCounters count the tokens of one model of a provider.
type tokenCounters struct{ input, output prometheus.Counter }

// tokensOf looks the counters up once: of the provider's models, and last of any other.
func (c *counters) tokensOf(p *Provider) []tokenCounters {
	var of []tokenCounters
	for _, m := range append(slices.Clone(p.Models), Model{}) {
		of = append(of, tokenCounters{c.tokens.WithLabelValues(p.Name, m.Asked, "input"), c.tokens.WithLabelValues(p.Name, m.Asked, "output")})
	}
	return of
}

// used adds to the tokens that answers took. The model is told as the config names it, not as the caller does.
func (x *exchange) used(model string, u dialect.Usage) {
	x.traced.used(u)
	if u == (dialect.Usage{}) {
		return
	}
	p := x.visit.provider
	i := slices.IndexFunc(p.config.Models, func(m Model) bool { return matches(m.Asked, model) })
	if i < 0 {
		i = len(p.config.Models)
	}
	p.tokens[i].input.Add(float64(u.Input))
	p.tokens[i].output.Add(float64(u.Output))
}

// timed adds to the seconds that requests waited.
func (p *pool) timed(kind string, d time.Duration) {
	p.counters.waits.WithLabelValues(kind).Add(d.Seconds())
}
