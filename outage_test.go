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
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/tidwall/gjson"
)

// play is a pool in virtual time whose upstreams do what a script says.
type play struct {
	t      *testing.T
	pool   *pool
	begun  time.Time
	script func(key string, n int) simOutcome // n counts a key's calls from 1

	mu    sync.Mutex
	asked []string // "<key> <time since the beginning>", in order
	count map[string]int
}

// inVirtualTime runs a test with a play. Chance is always 0, so jitter adds nothing.
func inVirtualTime(t *testing.T, h *Handler, script func(key string, n int) simOutcome, test func(*play)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &play{t: t, begun: time.Now(), script: script, count: make(map[string]int)}
		h.Pool = strings.ReplaceAll(t.Name(), "/", "-")
		var cleanup func()
		p.pool, cleanup = testHandler(t, h, p, func() float64 { return 0 })
		defer cleanup()
		test(p)
		for _, c := range p.pool.credentials {
			if n := c.facts.inFlight.Load(); n != 0 {
				t.Errorf("%s: %d in flight", c.name, n)
			}
		}
	})
}

// advance lets virtual time pass; only in a synctest bubble, where it is over as soon as all others there wait, too.
func advance(d time.Duration) { time.Sleep(d) }

// RoundTrip implements http.RoundTripper.
func (p *play) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	_, key, _ := strings.Cut(r.Header.Get("Authorization"), "secret-of-")
	_, key, _ = strings.Cut(key, "-")
	p.mu.Lock()
	p.count[key]++
	o := p.script(key, p.count[key])
	p.asked = append(p.asked, fmt.Sprintf("%s %v", key, time.Since(p.begun)))
	p.mu.Unlock()
	if err := simSleep(r.Context(), o.delay); err != nil {
		return nil, err
	}
	if o.err != nil {
		return nil, o.err
	}
	return &http.Response{
		StatusCode: o.status, Header: o.header.Clone(), Request: r, ContentLength: -1,
		Body: &simBody{ctx: r.Context(), out: &o, closed: func(bool) {}},
	}, nil
}

// post makes a request and returns what came, and after how long.
func (p *play) post(body string) (*simWriter, time.Duration) {
	return p.send(httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body)))
}

func (p *play) send(r *http.Request) (w *simWriter, took time.Duration) {
	p.t.Helper()
	w = &simWriter{header: make(http.Header)}
	start := time.Now()
	defer func() {
		took = time.Since(start)
		if r := recover(); r != nil && r != http.ErrAbortHandler {
			panic(r)
		} else if r != nil {
			w.aborted = true
		}
	}()
	if err := p.pool.serve(w, inCaddy(r)); err != nil {
		p.t.Error(err)
	}
	return w, 0
}

// wantAsked compares which keys were asked when.
func (p *play) wantAsked(want ...string) {
	p.t.Helper()
	if got := strings.Join(p.asked, ", "); got != strings.Join(want, ", ") {
		p.t.Errorf("asked %s\nwant  %s", got, strings.Join(want, ", "))
	}
}

const simChat = `{"model":"m","messages":[]}`

var (
	simOK      = simOutcome{status: 200, header: http.Header{"Content-Type": {"application/json"}}, parts: []simPart{{text: `{"choices":[{"message":{"content":"hello"}}]}`}}}
	simTooMany = simError(429, RateLimit, ScopeKey, "rate_limit_error", "Rate limit reached")
)

func always(o simOutcome) func(string, int) simOutcome {
	return func(string, int) simOutcome { return o }
}

// first answers the first calls of a pool's only key in turn, then well.
func first(os ...simOutcome) func(string, int) simOutcome {
	return func(_ string, n int) simOutcome {
		if n <= len(os) {
			return os[n-1]
		}
		return simOK
	}
}

func withHeader(o simOutcome, name, value string) simOutcome {
	o.header = o.header.Clone()
	o.header.Set(name, value)
	return o
}

// olderSystem is the configuration of examples/older-system: one account for all keys, half_open reset.
func olderSystem() *Handler {
	p := testProvider("vendor", "k1", "k2", "k3")
	p.Account = "vendor"
	return &Handler{Providers: []*Provider{p}, Circuit: &Circuit{HalfOpen: "reset"}}
}

// TestOlderSystem is the worst case of DESIGN.md section 4: 7 s + 0.5 s + 7 s + 1 s + 7 s, then 503 for 30 s.
func TestOlderSystem(t *testing.T) {
	inVirtualTime(t, olderSystem(), always(simTooMany), func(p *play) {
		w, took := p.post(simChat)
		if want := 22500 * milli; took != want || w.status != 429 {
			t.Errorf("%d after %v, want 429 after %v", w.status, took, want)
		}
		p.wantAsked(
			"k1 0s", "k1 1s", "k1 3s", "k1 7s",
			"k2 7.5s", "k2 8.5s", "k2 10.5s", "k2 14.5s",
			"k3 15.5s", "k3 16.5s", "k3 18.5s", "k3 22.5s",
		)
		for range 29 {
			advance(time.Second)
			w, took := p.post(simChat)
			if took != 0 || w.status != 503 || gjson.Get(w.body.String(), "error.code").String() != codeAllHalted {
				t.Fatalf("%d after %v: %s", w.status, took, w.body.String())
			}
		}
		if w, _ := p.post(simChat); w.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q in the last second", w.header.Get("Retry-After"))
		}
		advance(time.Second)
		if p.post(simChat); len(p.asked) != 15 { // the probe asks each key once, and waits for none
			t.Errorf("after the halt: %v", p.asked[12:])
		}
	})
}

// TestOlderSystemWithoutMoney: the first 402 halts the whole vendor, for 60 s, 2, 4, 5 and again 5 minutes.
func TestOlderSystemWithoutMoney(t *testing.T) {
	poor := simError(402, BillingError, ScopeAccount, "billing_error", "Insufficient balance")
	inVirtualTime(t, olderSystem(), always(poor), func(p *play) {
		for range 1200 {
			p.post(simChat)
			advance(time.Second)
		}
		p.wantAsked("k1 0s", "k1 1m0s", "k1 3m0s", "k1 7m0s", "k1 12m0s", "k1 17m0s")
	})
}

// TestDayOfOutage: one caller every ten seconds for a day that nobody answers. What goes upstream stays little.
func TestDayOfOutage(t *testing.T) {
	for _, tc := range []struct {
		what   string
		script func(string, int) simOutcome
		most   int // calls
	}{
		// Two circuits of two providers, each probed once in 30 s, and opened by three faults of four keys.
		{"faults", always(simError(500, ServerError, ScopeKey, "server_error", "")), 4*86400/30 + 12},
		{"unreachable", always(simOutcome{err: simRefused}), 2*86400/300 + 10},
		{"no money", always(simError(402, BillingError, ScopeAccount, "billing_error", "Insufficient balance")), 4*86400/300 + 20},
		{"bad credentials", always(simError(401, AuthError, ScopeKey, "authentication_error", "")), 4*86400/600 + 4},
	} {
		t.Run(tc.what, func(t *testing.T) {
			h := &Handler{Providers: []*Provider{testProvider("a", "a1", "a2"), testProvider("b", "b1", "b2")}}
			inVirtualTime(t, h, tc.script, func(p *play) {
				for range 8640 {
					w, _ := p.post(simChat)
					if w.status < 400 {
						t.Fatal(w.status)
					}
					advance(10*time.Second - time.Since(p.begun)%(10*time.Second))
				}
				if len(p.asked) > tc.most {
					t.Errorf("%d calls, want at most %d", len(p.asked), tc.most)
				}
				p.script = always(simOK)
				advance(10 * time.Minute)
				for range 8 {
					if w, _ := p.post(simChat); w.status != 200 {
						t.Errorf("after the outage: %d %s", w.status, w.body.String())
					}
				}
			})
		})
	}
}

// TestWaitsForALimitedAccount: a hint on the account's limit is waited for like one on the key's.
func TestWaitsForALimitedAccount(t *testing.T) {
	limited := withHeader(simError(429, RateLimit, ScopeAccount, "rate_limit_error", "Rate limit reached for your organization"), "Retry-After", "2")
	inVirtualTime(t, &Handler{Providers: []*Provider{testProvider("a", "k1")}}, first(limited), func(p *play) {
		if w, took := p.post(simChat); w.status != 200 || took != 2*time.Second {
			t.Errorf("%d after %v", w.status, took)
		}
		p.wantAsked("k1 0s", "k1 2s")
	})
}

// TestWaitsWithOneInFlight: a key's own call does not make it too busy to be asked again.
func TestWaitsWithOneInFlight(t *testing.T) {
	provider := testProvider("a", "k1")
	provider.Keys[0].MaxInFlight = 1
	inVirtualTime(t, &Handler{Providers: []*Provider{provider}}, first(simTooMany), func(p *play) {
		if w, took := p.post(simChat); w.status != 200 || took != time.Second {
			t.Errorf("%d after %v", w.status, took)
		}
	})
}

// TestLongerHintOfAnother: a request with a short hint does not ask a key that another request was told to leave
// alone for longer.
func TestLongerHintOfAnother(t *testing.T) {
	slow := withHeader(simTooMany, "Retry-After", "2")
	slow.delay = time.Second
	script := first(slow, withHeader(simTooMany, "Retry-After", "60"))
	inVirtualTime(t, &Handler{Providers: []*Provider{testProvider("a", "k1")}}, script, func(p *play) {
		var wg sync.WaitGroup
		wg.Go(func() { p.post(simChat) })
		synctest.Wait()
		p.post(simChat)
		wg.Wait()
		p.wantAsked("k1 0s", "k1 0s")
	})
}

// TestDoesNotWaitForOpenCircuits: a key that cools for two seconds and whose circuit is open for thirty is not worth
// a wait, and the refusal says 503 and 30 s.
func TestDoesNotWaitForOpenCircuits(t *testing.T) {
	h := &Handler{Providers: []*Provider{testProvider("a", "k1")}, Circuit: &Circuit{Threshold: 1}}
	h.Retry = &Retry{SameKeyOn: []Class{ModelUnavailable}}
	inVirtualTime(t, h, always(withHeader(simTooMany, "Retry-After", "2")), func(p *play) {
		p.post(simChat)
		w, took := p.post(simChat)
		if took != 0 || w.status != 503 || w.header.Get("Retry-After") != "30" {
			t.Errorf("%d after %v, Retry-After %s: %s", w.status, took, w.header.Get("Retry-After"), w.body.String())
		}
	})
}

// TestDeadlineIsNobodysFault: an attempt that the caller's deadline ends says nothing about the key.
func TestDeadlineIsNobodysFault(t *testing.T) {
	h := &Handler{Providers: []*Provider{testProvider("a", "k1")}, Timeouts: &Timeouts{Deadline: caddy.Duration(2 * time.Second)}}
	inVirtualTime(t, h, always(simOutcome{delay: time.Hour}), func(p *play) {
		for range 5 {
			w, took := p.post(simChat)
			if w.status != 504 || gjson.Get(w.body.String(), "error.code").String() != codeDeadline || took != 2*time.Second {
				t.Errorf("%d after %v: %s", w.status, took, w.body.String())
			}
		}
	})
}

// TestQueuedTooLong: who waited for a turn until no attempt could begin any more has cost the upstream nothing, and is
// told when to come back.
func TestQueuedTooLong(t *testing.T) {
	h := &Handler{
		Providers: []*Provider{testProvider("a", "k1")}, Retry: &Retry{Window: caddy.Duration(5 * time.Second)},
		Limits: &Limits{MaxInFlight: 1, Queue: 1, QueueWait: caddy.Duration(time.Minute)},
	}
	slow := simOK
	slow.delay = 10 * time.Second
	inVirtualTime(t, h, always(slow), func(p *play) {
		var wg sync.WaitGroup
		wg.Go(func() { p.post(simChat) })
		synctest.Wait()
		w, took := p.post(simChat)
		wg.Wait()
		if w.status < 500 || w.header.Get("Retry-After") == "" || took > 10*time.Second {
			t.Errorf("%d after %v, Retry-After %q: %s", w.status, took, w.header.Get("Retry-After"), w.body.String())
		}
		p.wantAsked("k1 0s")
	})
}

// TestProbeOfOwnCircuit: a visit that opened the circuit, outlasted it with its waits and so became its probe, opens
// it again when it fails.
func TestProbeOfOwnCircuit(t *testing.T) {
	h := &Handler{
		Providers: []*Provider{testProvider("a", "k1")}, Retry: &Retry{SameKey: []caddy.Duration{caddy.Duration(2 * time.Second)}},
		Circuit: &Circuit{Threshold: 1, Cooldown: caddy.Duration(time.Second)}, Halt: &Halt{RateLimit: 1},
	}
	inVirtualTime(t, h, always(simTooMany), func(p *play) {
		p.post(simChat)
		p.wantAsked("k1 0s", "k1 2s")
		if w, _ := p.post(simChat); w.status != 503 {
			t.Errorf("%d right after the probe failed", w.status)
		}
	})
}

// TestFailureAfterCommit is a new fault, also of a visit that had been charged before its success.
func TestFailureAfterCommit(t *testing.T) {
	s := simStreams["chat"]
	broken := simOutcome{status: 200, header: http.Header{"Content-Type": {"text/event-stream"}}, parts: []simPart{{text: s.content}, {delay: 1, err: io.ErrUnexpectedEOF}}}
	h := &Handler{Providers: []*Provider{testProvider("a", "k1")}, Circuit: &Circuit{Threshold: 1}}
	inVirtualTime(t, h, first(simTooMany, broken), func(p *play) {
		if w, _ := p.post(`{"model":"m","stream":true}`); !w.aborted {
			t.Errorf("%d %s", w.status, w.body.String())
		}
		if state := p.pool.key("k1").facts.circuit.state(time.Now()); state != circuitOpen {
			t.Error(state)
		}
		p.wantAsked("k1 0s", "k1 1s")
	})
}

// TestSlowUpload: how long a caller takes to send the body is taken from nobody's time.
func TestSlowUpload(t *testing.T) {
	h := &Handler{Providers: []*Provider{testProvider("a", "k1")}, Timeouts: &Timeouts{Deadline: caddy.Duration(2 * time.Second)}}
	inVirtualTime(t, h, first(simTooMany), func(p *play) {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", &simSlowBody{after: 3 * time.Minute, text: simChat})
		if w, _ := p.send(r); w.status != 200 && w.status != 429 {
			t.Errorf("%d: %s", w.status, w.body.String())
		}
		p.wantAsked("k1 3m0s")
	})
}

type simSlowBody struct {
	after time.Duration
	text  string
}

func (b *simSlowBody) Read(p []byte) (int, error) {
	if b.text == "" {
		return 0, io.EOF
	}
	advance(b.after)
	n := copy(p, b.text)
	b.text = b.text[n:]
	return n, nil
}

// TestProbeGoesOn: the first request after a halt is the probe, whichever of the keys it asks: one that fails there for
// a reason of its own is no reason to fail the request.
func TestProbeGoesOn(t *testing.T) {
	for _, tc := range []struct {
		name string
		k1   reply
	}{
		{"a fault", fails(500, "oops")},
		{"a rejected key", fails(401, "Incorrect API key provided")},
		{"a limit with a long hint", limited("Retry-After", "100")},
		{"a missing model", says(404, `{"error":{"message":"The model m does not exist","type":"invalid_request_error","code":"model_not_found"}}`)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newUpstream(t).on("k1", says(521, "down"), tc.k1)
			s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+quick+"halt {\nbase 20ms\n}\n}")
			s.post("/v1/chat/completions", chat("m")).want(521)
			eventually(t, "the halt is over", func() bool { return s.state("default.providers.default.halt") == "" })
			s.post("/v1/chat/completions", chat("m")).want(200, "from-k2")
			a.wantOrder("k1 k1 k2")
			s.wantState("default.unproven", "", "default.status", "available")
		})
	}
}

// TestDeadlineOfOneAttempt: a deadline of min_attempt leaves time for the one attempt that begins at once.
func TestDeadlineOfOneAttempt(t *testing.T) {
	a := newUpstream(t)
	s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+"timeouts {\ndeadline 1s\n}\n}")
	s.post("/v1/chat/completions", chat("m")).want(200)
}
