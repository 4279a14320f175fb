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
	requests *prometheus.CounterVec
	waits    *prometheus.CounterVec
	first    prometheus.Histogram
	whole    prometheus.Histogram
	overhead prometheus.Histogram

	ended map[outcome]prometheus.Counter // requests, looked up once
}

func newCounters(pool string) *counters {
	mine := prometheus.Labels{labelPool: pool}
	seconds := func(name, help string, buckets []float64) prometheus.Histogram {
		of := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: namespace + name, Help: help, Buckets: buckets}, []string{labelPool})
		return of.With(mine).(prometheus.Histogram)
	}
	c := &counters{
		requests: counterVec(mine, "requests_total", "Requests that have ended, by their outcome.", labelPool, "outcome"),
		waits:    counterVec(mine, "wait_seconds_total", "Seconds that requests waited, by what for.", labelPool, "kind"),
		first:    seconds("first_content_seconds", "Seconds from a request's arrival to the first content for its caller.", answerBuckets),
		whole:    seconds("request_seconds", "Seconds from a request's arrival to its end.", answerBuckets),
		overhead: seconds("overhead_seconds", "Seconds of a served request, up to its first content, that were neither an upstream's nor a wait.", overheadBuckets),
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

// counterVec is a vector of which some labels are given.
func counterVec(given prometheus.Labels, name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: namespace + name, Help: help}, labels).MustCurryWith(given)
}

func (c *counters) all() []prometheus.Collector {
	return []prometheus.Collector{c.requests, c.waits, c.first, c.whole, c.overhead}
}

// keyCounters count what a key's calls bring. They live as long as its name is in the config, and what a call counts
// that is still under way then is told no more.
type keyCounters struct {
	attempts  *prometheus.CounterVec // by class
	failovers *prometheus.CounterVec // by class
	benches   *prometheus.CounterVec // by target and reason

	served prometheus.Counter // attempts that did not fail, looked up once
}

// newKeyCounters has the usual series at zero, so that their first increase is seen.
func newKeyCounters(pool, provider, key string) *keyCounters {
	mine := prometheus.Labels{labelPool: pool, labelProvider: provider, labelKey: key}
	c := &keyCounters{
		attempts:  counterVec(mine, "attempts_total", "Upstream calls that have been judged, by the class of their failure, or ok.", labelPool, labelProvider, labelKey, "class"),
		failovers: counterVec(mine, "failovers_total", "Times a request moved on from a key, by the class of its failure there.", labelPool, labelProvider, labelKey, "class"),
		benches:   counterVec(mine, "benches_total", "Times something was set aside, by what it was and why.", labelPool, labelProvider, labelKey, "target", "reason"),
	}
	for _, class := range Classes {
		c.attempts.WithLabelValues(string(class))
		if class.Parent() != BadRequest {
			c.failovers.WithLabelValues(string(class))
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
			c.benches.WithLabelValues(target, string(reason))
		}
	}
	c.served = c.attempts.WithLabelValues(classServed)
	return c
}

func (c *keyCounters) all() []prometheus.Collector {
	return []prometheus.Collector{c.attempts, c.failovers, c.benches}
}

// newTokens counts the tokens of a provider's answers. It lives as long as what is known of the provider.
func newTokens(pool, provider string) *prometheus.CounterVec {
	return counterVec(prometheus.Labels{labelPool: pool, labelProvider: provider},
		"tokens_total", "Tokens that answers say they took, by the model's name in the config.", labelPool, labelProvider, labelModel, "type")
}

// tokenCounters count the tokens of one model of a provider.
type tokenCounters struct{ input, output prometheus.Counter }

// tokenCountersOf looks the counters up once: of the config's models, and last of any other.
func tokenCountersOf(tokens *prometheus.CounterVec, models []Model) []tokenCounters {
	var of []tokenCounters
	for _, m := range append(slices.Clone(models), Model{}) {
		of = append(of, tokenCounters{tokens.WithLabelValues(m.Asked, "input"), tokens.WithLabelValues(m.Asked, "output")})
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
