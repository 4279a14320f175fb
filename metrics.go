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

const (
	namespace     = "llm_failover_"
	labelPool     = "pool"
	labelProvider = "provider"
	labelKey      = "key"
	labelModel    = "model"
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
	mine := prometheus.Labels{labelPool: pool}
	vec := func(name, help string, of ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: namespace + name, Help: help}, append([]string{labelPool}, of...)).MustCurryWith(mine)
	}
	seconds := func(name, help string, buckets []float64) prometheus.Histogram {
		of := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: namespace + name, Help: help, Buckets: buckets}, []string{labelPool})
		return of.With(mine).(prometheus.Histogram)
	}
	c := &counters{
		requests:  vec("requests_total", "Requests that have ended, by their outcome.", "outcome"),
		attempts:  vec("attempts_total", "Upstream calls that have been judged, by the class of their failure, or ok.", labelProvider, labelKey, "class"),
		failovers: vec("failovers_total", "Times a request moved on from a key, by the class of its failure there.", labelProvider, labelKey, "class"),
		waits:     vec("wait_seconds_total", "Seconds that requests waited, by what for.", "kind"),
		benches:   vec("benches_total", "Times something was set aside, by what it was and why.", labelProvider, labelKey, "target", "reason"),
		tokens:    vec("tokens_total", "Tokens that answers say they took, by the model's name in the config.", labelProvider, labelModel, "type"),
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
	for _, c := range newCounters("").all() {
		c.Describe(ch)
	}
	for _, d := range gaugeDescs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range pools.all() {
		for _, c := range p.counters.all() {
			c.Collect(ch)
		}
		p.collect(ch)
	}
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

// named is what some series of a pool are about.
type named struct{ provider, label, name string }

// names are all keys and models that a handler's config names.
func (h *Handler) names() (all []named) {
	for _, p := range h.Providers {
		for _, k := range p.Keys {
			all = append(all, named{p.Name, labelKey, k.Name})
		}
		for _, m := range append(slices.Clone(p.Models), Model{}) {
			all = append(all, named{p.Name, labelModel, m.Asked})
		}
	}
	return all
}

// retain forgets the series about what a handler's config named that none of those left of its pool does. A call that is
// still under way may bring some back, which end with the pool.
func (c *counters) retain(gone *Handler, left []*Handler) {
	var kept []named
	for _, h := range left {
		kept = append(kept, h.names()...)
	}
	for _, n := range gone.names() {
		if slices.Contains(kept, n) {
			continue
		}
		for _, of := range []*prometheus.CounterVec{c.attempts, c.failovers, c.benches, c.tokens} {
			of.DeletePartialMatch(prometheus.Labels{labelProvider: n.provider, n.label: n.name})
		}
	}
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

// begin has the series of a key at zero, so that their first increase is seen. What can be set aside, and why, depends
// on the config; these are the usual ones.
func (c *counters) begin(provider, key string) (served prometheus.Counter) {
	for _, class := range Classes {
		c.attempts.WithLabelValues(provider, key, string(class))
		if class.Parent() != BadRequest {
			c.failovers.WithLabelValues(provider, key, string(class))
		}
	}
	for target, reasons := range map[string][]Class{
		targetCircuit:  {RateLimit, ServerError, Timeout, ProviderUnavailable},
		targetKey:      {RateLimit, AuthError, QuotaExhausted, BillingError},
		targetModel:    {RateLimit, ModelUnavailable, QuotaExhausted, BillingError},
		targetAccount:  {RateLimit, QuotaExhausted, BillingError},
		targetProvider: {RateLimit, ProviderUnavailable, Overloaded},
	} {
		for _, reason := range reasons {
			c.benches.WithLabelValues(provider, key, target, string(reason))
		}
	}
	return c.attempts.WithLabelValues(provider, key, classServed)
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
