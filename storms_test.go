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
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmfailover/caddy-llm-failover/internal/storm"
)

// stormScenario parses a scenario.
func stormScenario(tb testing.TB, text string) *storm.Scenario {
	tb.Helper()
	s, err := storm.Parse(strings.NewReader(text))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// stormConfig is the JSON of a handler: providers with so many keys, and what else is given.
func stormConfig(tb testing.TB, more string, keys ...int) []byte {
	tb.Helper()
	h := new(Handler)
	if err := json.Unmarshal([]byte("{"+more+"}"), h); err != nil {
		tb.Fatal(err)
	}
	for i, n := range keys {
		p := testProvider(fmt.Sprint("p", i))
		for k := range n {
			p.Keys = append(p.Keys, &Key{Name: fmt.Sprint("k", k)})
		}
		h.Providers = append(h.Providers, p)
	}
	text, err := json.Marshal(h)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func runStorm(tb testing.TB, scenario *storm.Scenario, config []byte) *storm.Run {
	tb.Helper()
	run, err := simulateStorm(config, scenario, 1, tb.Name(), false)
	if err != nil {
		tb.Fatal(err)
	}
	return run
}

// Storms in which the budget alone has its say, since no circuit opens.
const (
	outageOf300 = `{callers: 300, phases: [{status: 503, delay: 200ms}]`
	stubborn300 = outageOf300 + `, stubborn: true}`
	sixTries    = `"retry": {"max_retries": 5%s}, "circuit": {"threshold": 1000000}`
	noBudget    = `, "budget": {"percent": 100, "per_second": 1000000}`
)

// TestTotalOutage: 300 callers at once, each with two retries of its SDK. With the budget a provider that is down sees
// little more than what callers ask; without it, that many times over.
func TestTotalOutage(t *testing.T) {
	for _, tc := range []struct {
		what, scenario, config string
		keys                   int
		least, most            float64 // calls for each try that reaches the gateway
	}{
		{"with the defaults", outageOf300 + "}", "", 2, 1, 1.2},
		{"SDKs that retry whatever they are told", stubborn300, "", 2, 0.3, 1.2},
		{"and no circuits", stubborn300, fmt.Sprintf(sixTries, ""), 6, 1, 1.2},
		{"and no budget", stubborn300, fmt.Sprintf(sixTries, noBudget), 6, 5, 6},
	} {
		t.Run(tc.what, func(t *testing.T) {
			run := runStorm(t, stormScenario(t, tc.scenario), stormConfig(t, tc.config, tc.keys))
			got := float64(run.Calls-run.Probes) / float64(run.Tries)
			t.Logf("%d requests, %d tries, %d calls, %d of them probes: %.2f a try", run.Requests, run.Tries, run.Calls, run.Probes, got)
			if got < tc.least || got > tc.most {
				t.Errorf("%.3f calls a try, want %v to %v", got, tc.least, tc.most)
			}
			if run.Requests != 300 || run.Done != 0 {
				t.Errorf("%d requests, %d done", run.Requests, run.Done)
			}
		})
	}
}

// TestTotalOutageOfTwoProviders: the budget holds for each of them, also where requests would go back and forth.
func TestTotalOutageOfTwoProviders(t *testing.T) {
	for what, phase := range map[string]string{
		"slow timeouts": "status: 504, delay: 5s", "slow failures": "status: 503, delay: 2s", "quick failures": "status: 500, delay: 50ms", "silence": "error: silent",
	} {
		for _, circuit := range []string{"", `"circuit": {"threshold": 1000000},`} {
			run := runStorm(t, stormScenario(t, "{callers: 300, retries: 0, phases: [{"+phase+"}]}"), stormConfig(t, circuit+`"timeouts": {"headers": "6s"}`, 2, 2))
			// One for each request, what the bucket holds at first, and what time adds.
			budget := run.Tries + 50 + 10*int(run.Last/1000+1)
			if got := run.Calls - run.Probes; got > 2*budget {
				t.Errorf("%s %s: %d calls in %d ms, want %d at the most", what, circuit, got, run.Last, 2*budget)
			}
		}
	}
}

// BenchmarkTotalOutage prints what the budget is worth: upstream calls for each try, with and without.
func BenchmarkTotalOutage(b *testing.B) {
	scenario := stormScenario(b, stubborn300)
	for name, more := range map[string]string{"with": "", "without": noBudget} {
		b.Run(name+"_budget", func(b *testing.B) {
			var run *storm.Run
			for b.Loop() {
				run = runStorm(b, scenario, stormConfig(b, fmt.Sprintf(sixTries, more), 6))
			}
			b.ReportMetric(float64(run.Calls)/float64(run.Tries), "calls/try")
			b.ReportMetric(float64(run.Calls), "calls")
			b.ReportMetric(float64(run.Probes), "probes")
		})
	}
}

// TestOneBadKey: with a key that always fails and a good one, 50 callers at once are all served, also where nothing
// but the budget limits what they do.
func TestOneBadKey(t *testing.T) {
	scenario := stormScenario(t, `{callers: 50, phases: [{key: "#1", status: 500, delay: 100ms}]}`)
	for name, config := range map[string]string{"defaults": "", "no circuits": `"circuit": {"threshold": 1000000}`} {
		if run := runStorm(t, scenario, stormConfig(t, config, 2)); run.Done != 50 || run.Tries != 50 {
			t.Errorf("%s: %d of 50 done in %d tries", name, run.Done, run.Tries)
		}
	}
}

// TestRecovery: after an outage the first request within one cooldown succeeds, and after the ramp all do, while never
// more than one call finds out for each target whether it is back.
func TestRecovery(t *testing.T) {
	scenario := stormScenario(t, `{callers: 3000, arrive: 150s, phases: [{until: 40s, status: 503, delay: 100ms}]}`)
	unreachable := stormScenario(t, `{callers: 3000, arrive: 200s, phases: [{until: 40s, error: refused, delay: 1ms}]}`)
	for _, tc := range []struct {
		what     string
		scenario *storm.Scenario
		cooldown time.Duration
		keys     []int
	}{
		{"one key", scenario, 30 * time.Second, []int{1}},
		{"three keys", scenario, 30 * time.Second, []int{3}},
		{"three providers", scenario, 30 * time.Second, []int{1, 2, 1}},
		{"providers that cannot be reached", unreachable, 60 * time.Second, []int{2, 1}},
	} {
		for _, ramp := range []string{"", `"circuit": {"ramp": "10s"}`} {
			run := runStorm(t, tc.scenario, stormConfig(t, ramp, tc.keys...))
			what := tc.what + " " + ramp
			t.Logf("%s: first after %d ms, full after %d ms, %d probes", what, run.FirstAfter, run.FullAfter, run.Probes)
			if first := time.Duration(run.FirstAfter) * time.Millisecond; first < 0 || first > tc.cooldown+time.Second {
				t.Errorf("%s: first success after %v", what, first)
			}
			if full := time.Duration(run.FullAfter) * time.Millisecond; full < 0 || full > tc.cooldown+10*time.Second {
				t.Errorf("%s: full after %v", what, full)
			}
			if run.AtOnce > 1 || run.Probes == 0 {
				t.Errorf("%s: %d probes, %d at once", what, run.Probes, run.AtOnce)
			}
		}
	}
}

// TestSameSeedSameFigures: a simulation depends on its seed, and on nothing else.
func TestSameSeedSameFigures(t *testing.T) {
	config := stormConfig(t, "", 2, 1)
	for _, name := range storm.Names() {
		var first string
		for range 3 {
			run, err := simulateStorm(config, storm.BuiltIn(name), 7, name, false)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := json.Marshal(run)
			if first == "" {
				first = string(text)
			} else if string(text) != first {
				t.Errorf("%s: %s and then %s", name, first, text)
			}
		}
	}
}

// TestBuiltInStorms: what the gateway makes of each built-in scenario, against what callers make of it alone.
func TestBuiltInStorms(t *testing.T) {
	config := stormConfig(t, "", 2, 1)
	for name, least := range map[string]float64{ // the share of requests that are served
		"dead-key": 1, "no-money": 1, "provider-down": 1, "flapping": 1, "slow": 1, "rate-limit-window": 1, "total-outage": 0.4,
	} {
		run := runStorm(t, storm.BuiltIn(name), config)
		alone, err := simulateStorm(config, storm.BuiltIn(name), 1, "alone", true)
		if err != nil {
			t.Fatal(err)
		}
		if done := float64(run.Done) / float64(run.Requests); done < least {
			t.Errorf("%s: %.3f served, want %v", name, done, least)
		}
		if run.Done < alone.Done {
			t.Errorf("%s: %d served, %d without the gateway", name, run.Done, alone.Done)
		}
	}
}

// TestLoad: half a million requests (or LLMFAILOVER_REQUESTS) through a pool that has a limit on everything, while its
// keys fail in all ways. In the end nothing is held.
func TestLoad(t *testing.T) {
	callers, requests := 1000, 500
	if n, err := strconv.Atoi(os.Getenv("LLMFAILOVER_REQUESTS")); err == nil {
		requests = max(n/callers, 1)
	}
	if testing.Short() {
		requests = min(requests, 20)
	}
	scenario := stormScenario(t, fmt.Sprintf(`
callers: %d
requests: %d
arrive: 3s
pause: 200ms
latency: 150ms
patience: 4s
phases:
  - {every: 31s, for: 4s, provider: p0, status: 503, delay: 50ms}
  - {every: 17s, for: 3s, provider: p1, key: "#1", error: reset, delay: 20ms}
  - {every: 47s, for: 5s, provider: p1, error: refused, delay: 1ms}
  - {every: 13s, for: 1s, key: "#2", error: silent}
  - {every: 61s, for: 7s, key: "#3", status: 402}
  - {every: 29s, for: 9s, key: "#1", status: 429, headers: {Retry-After: "1"}, delay: 5ms}
  - {provider: p2, limit: {calls: 300, per: 2s}}
`, callers, requests))
	config := stormConfig(t, `
		"select": {"policy": "least_in_flight"},
		"circuit": {"cooldown": "2s", "ramp": "3s"},
		"halt": {"base": "2s", "max": "8s", "recheck": "3s"},
		"timeouts": {"headers": "2s"},
		"limits": {"max_in_flight": 250, "queue": 400, "queue_wait": "2s"}`, 3, 3, 3)
	before := runtime.NumGoroutine()

	// A reference of the test's own keeps what is known when the run is over.
	pool := acquireForTest[poolFacts](t, factKey{pool: defaultName})
	var keys []*keyFacts
	var providers []*providerFacts
	for p := range 3 {
		name := fmt.Sprint("p", p)
		providers = append(providers, acquireForTest[providerFacts](t, factKey{pool: defaultName, provider: name}))
		for k := range 3 {
			secret := newSecret(fmt.Sprintf("simulated %s %d.", name, k)).withSpelling()
			keys = append(keys, acquireForTest[keyFacts](t, factKey{pool: defaultName, provider: name, key: fmt.Sprint("k", k), secret: secret.sum}))
		}
	}
	run := runStorm(t, scenario, config)
	t.Logf("%d requests, %d tries, %d calls, %d done, %d refused tries, %d probes", run.Requests, run.Tries, run.Calls, run.Done, run.Refused, run.Probes)
	if run.Requests != callers*requests || run.Done == 0 || run.Failed == 0 || run.Refused == 0 || run.AtOnce > 1 {
		t.Errorf("%+v", run)
	}
	if pool.gate.inside != 0 || len(pool.gate.queue) != 0 || pool.heldBytes.Load() != 0 {
		t.Errorf("in the gate %d, in the queue %d, held %d", pool.gate.inside, len(pool.gate.queue), pool.heldBytes.Load())
	}
	attempts := uint64(0)
	for i, k := range keys {
		if n := k.inFlight.Load(); n != 0 {
			t.Errorf("key %d: %d in flight", i, n)
		}
		if k.circuit.probe != nil || k.rejected.probe != nil {
			t.Errorf("key %d: a probe slot is held", i)
		}
		attempts += k.attempts.Load()
	}
	if attempts != uint64(run.Calls) {
		t.Errorf("%d attempts counted, %d calls made", attempts, run.Calls)
	}
	for i, p := range providers {
		if p.bench.probe != nil {
			t.Errorf("provider %d: a probe slot is held", i)
		}
		if tokens := p.budget.tokens; tokens < 0 || tokens > 50 {
			t.Errorf("provider %d: %v tokens", i, tokens)
		}
	}
	eventually(t, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
}

func acquireForTest[T any, P destructor[T]](t *testing.T, key factKey) P {
	var held []factKey
	value := acquire[T, P](key, &held)
	t.Cleanup(func() {
		if _, err := facts.Delete(held[0]); err != nil {
			t.Error(err)
		}
	})
	return value
}
