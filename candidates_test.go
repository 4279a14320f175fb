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
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// choosing is a pool of one provider with n keys, k0 and so on, whose chance is seeded.
func choosing(t *testing.T, n int, policy string, weights ...int) *pool {
	provider := testProvider("a")
	for i := range n {
		k := &Key{Name: fmt.Sprint("k", i), Secret: fmt.Sprint("secret-", i)}
		if i < len(weights) {
			k.Weight = weights[i]
		}
		provider.Keys = append(provider.Keys, k)
	}
	h := &Handler{Providers: []*Provider{provider}, Select: &Select{Policy: policy}}
	if policy == selectSticky {
		h.Select.Placeholder = "{http.request.header.X-Session}"
	}
	p := testPool(t, h)
	p.random = rand.New(rand.NewPCG(1, 2)).Float64
	return p
}

// shares picks 10,000 times and returns each key's share.
func shares(p *pool) []float64 {
	const picks = 10000
	of := make([]float64, len(p.credentials))
	for range picks {
		cs := candidates{pool: p, dialect: "chat"}
		c := cs.pick(nil, anywhere, time.Now())
		of[slices.Index(p.credentials, c)] += 1.0 / picks
	}
	return of
}

func wantShares(t *testing.T, got []float64, want ...float64) {
	t.Helper()
	for i := range want {
		if got[i] < want[i]-0.02 || got[i] > want[i]+0.02 {
			t.Errorf("key %d has %.3f, want %.3f of %v", i, got[i], want[i], got)
		}
	}
}

func TestSelectFirst(t *testing.T) {
	p := choosing(t, 4, selectFirst)
	wantShares(t, shares(p), 1, 0, 0, 0)
	setDisabled(p.credentials[:2], true)
	defer setDisabled(p.credentials, false)
	wantShares(t, shares(p), 0, 0, 1, 0)
}

func TestSelectRandom(t *testing.T) {
	p := choosing(t, 4, selectRandom)
	wantShares(t, shares(p), 0.25, 0.25, 0.25, 0.25)
	setDisabled(p.credentials[:1], true)
	defer setDisabled(p.credentials, false)
	wantShares(t, shares(p), 0, 0.333, 0.333, 0.333)
}

// TestSelectWeighted: the weights hold among the free keys too.
func TestSelectWeighted(t *testing.T) {
	p := choosing(t, 4, selectWeightedRandom, 5, 1, 3, 0) // no weight is 1
	wantShares(t, shares(p), 0.5, 0.1, 0.3, 0.1)
	setDisabled(p.credentials[:1], true)
	defer setDisabled(p.credentials, false)
	wantShares(t, shares(p), 0, 0.2, 0.6, 0.2)
}

func TestWeighted(t *testing.T) {
	s := selection{shares: []float64{0.5, 0.6, 0.9, 1}}
	for _, tc := range []struct {
		x    float64
		want int
	}{{0, 0}, {0.49, 0}, {0.5, 1}, {0.59, 1}, {0.6, 2}, {0.89, 2}, {0.95, 3}, {0.9999, 3}, {1, 3}} {
		if got := s.weighted(tc.x); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.x, got, tc.want)
		}
	}
}

// TestSelectLeastInFlight: the least busy key, and among equals any.
func TestSelectLeastInFlight(t *testing.T) {
	p := choosing(t, 4, selectLeastInFlight)
	wantShares(t, shares(p), 0.25, 0.25, 0.25, 0.25)
	for i, n := range []int64{3, 1, 2, 1} {
		p.credentials[i].facts.inFlight.Store(n)
		defer p.credentials[i].facts.inFlight.Store(0)
	}
	wantShares(t, shares(p), 0, 0.5, 0, 0.5)
}

// TestSelectSticky: a caller stays with its key; when a key goes, only its own callers move, and evenly; when it
// comes back, so do they.
func TestSelectSticky(t *testing.T) {
	p := choosing(t, 5, selectSticky)
	const callers = 5000
	where := func() (of [callers]*credential) {
		for i := range of {
			cs := candidates{pool: p, dialect: "chat", sticky: hashOf(fmt.Sprint("caller ", i))}
			of[i] = cs.pick(nil, anywhere, time.Now())
		}
		return of
	}
	count := func(of [callers]*credential) []float64 {
		shares := make([]float64, len(p.credentials))
		for _, c := range of {
			shares[slices.Index(p.credentials, c)] += 1.0 / callers
		}
		return shares
	}
	before := where()
	wantShares(t, count(before), 0.2, 0.2, 0.2, 0.2, 0.2)
	gone := p.credentials[1]
	setDisabled([]*credential{gone}, true)
	without := where()
	wantShares(t, count(without), 0.25, 0, 0.25, 0.25, 0.25)
	for i := range before {
		if before[i] != gone && without[i] != before[i] {
			t.Fatalf("caller %d moved although its key is there", i)
		}
	}
	setDisabled([]*credential{gone}, false)
	if where() != before {
		t.Error("not all came back")
	}
}

// TestRoundRobinOrder: on failover the others follow in their order, from where the request began.
func TestRoundRobinOrder(t *testing.T) {
	p := choosing(t, 4, selectRoundRobin)
	for start := range 4 {
		cs := candidates{pool: p, dialect: "chat"}
		var order []string
		var last *credential
		for v := cs.next(nil, time.Now(), anywhere); v != nil; v = cs.next(last, time.Now(), anywhere) {
			order, last = append(order, v.name), v.credential
			v.facts.inFlight.Add(-1)
		}
		want := "k0 k1 k2 k3 k0 k1 k2 k3"[3*start : 3*start+11]
		if got := strings.Join(order, " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestNextAndSurvey: places are seen from the key asked last, and no key comes twice.
func TestNextAndSurvey(t *testing.T) {
	p := twoAccounts(t) // k1 and k2 share an account, k3 has its own, k4 another provider
	now := time.Now()
	next := func(places where) string {
		cs := candidates{pool: p, dialect: "chat", model: "m"}
		first := cs.next(nil, now, anywhere)
		defer first.facts.inFlight.Add(-1)
		v := cs.next(first.credential, now, places)
		if v == nil {
			return ""
		}
		v.facts.inFlight.Add(-1)
		return v.name
	}
	for _, tc := range []struct {
		places where
		want   string
	}{{sameAccount, "k2"}, {otherAccount, "k3"}, {otherProvider, "k4"}, {otherAccount | otherProvider, "k3"}, {anywhere, "k2"}, {0, ""}} {
		if got := next(tc.places); got != tc.want {
			t.Errorf("%03b: %q, want %q", tc.places, got, tc.want)
		}
	}
	cs := candidates{pool: p, dialect: "chat", model: "m", tried: []*credential{p.key("k1"), p.key("k3")}}
	attempted(p.key("k2")).record(Verdict{Class: RateLimit, Scope: ScopeKey, Wait: time.Minute}, 429, no, now)
	s := cs.survey(p.key("k1"), now)
	if s.free != otherProvider || s.serving != 4 || s.count[cooling] != 1 || s.count[free] != 1 || s.cooling.Sub(now) != time.Minute {
		t.Errorf("%+v", s)
	}
}

// TestOneProbe: when a halt, a rejection or an open circuit is over, one request goes first and the others pass by,
// until it has succeeded, or handed its slot back.
func TestOneProbe(t *testing.T) {
	for _, tc := range []struct {
		what    string
		verdict Verdict
		over    time.Duration
		why     obstacle
	}{
		{"circuit", Verdict{Class: ServerError, Scope: ScopeKey}, 30 * time.Second, open},
		{"rejected", Verdict{Class: AuthError, Scope: ScopeKey}, 10 * time.Minute, rejected},
		{"account", Verdict{Class: BillingError, Scope: ScopeAccount}, time.Minute, halted},
		{"provider", Verdict{Class: ProviderUnavailable, Scope: ScopeProvider}, time.Minute, halted},
	} {
		t.Run(tc.what, func(t *testing.T) {
			h := &Handler{Providers: []*Provider{testProvider("a", "k1")}, Circuit: &Circuit{Threshold: 1}}
			p := testPool(t, h)
			k, now := p.key("k1"), time.Now()
			attempted(k).record(tc.verdict, 500, yes, now)
			claim := func() (*visit, obstacle) {
				v := &visit{credential: k, model: "m"}
				st := k.claim(v, now)
				if st.obstacle == free {
					v.facts.inFlight.Add(-1)
				}
				v.calling, v.started = false, sequence.Load()
				return v, st.obstacle
			}
			if _, why := claim(); why != tc.why {
				t.Errorf("%v is in the way, want %v", why, tc.why)
			}
			now = now.Add(max(tc.over, time.Minute)) // also the circuit that the verdict opened is over
			if st := k.look("m", nil, now); st.obstacle != free {
				t.Errorf("looking: %v", st.obstacle)
			}
			probe, why := claim()
			if why != free || !probe.probes {
				t.Fatalf("the first: %v, a probe: %v", why, probe.probes)
			}
			for range 3 {
				if _, why := claim(); why == free {
					t.Error("a second one goes through")
				}
			}
			probe.release()
			probe, why = claim()
			if why != free || !probe.probes {
				t.Errorf("after the slot was handed back: %v", why)
			}
			probe.recordSuccess(now)
			for range 3 {
				if v, why := claim(); why != free || v.probes {
					t.Errorf("after the success: %v", why)
				}
			}
			probe.release()
		})
	}
}

// TestProbeFails: then everybody waits again, and longer.
func TestProbeFails(t *testing.T) {
	p, now := twoAccounts(t), time.Now()
	k1 := p.key("k1")
	poor := Verdict{Class: BillingError, Scope: ScopeAccount}
	attempted(k1).record(poor, 402, yes, now)
	now = now.Add(time.Minute)
	v := &visit{credential: k1, model: "m"}
	if k1.claim(v, now).obstacle != free {
		t.Fatal("no probe")
	}
	v.facts.inFlight.Add(-1)
	v.started = sequence.Load()
	v.record(poor, 402, yes, now)
	v.release()
	if st := k1.look("m", nil, now); st.obstacle != halted || st.until.Sub(now) != 2*time.Minute {
		t.Errorf("%v for %v", st.obstacle, st.until.Sub(now))
	}
	if st := p.key("k3").look("m", nil, now); st.obstacle != free {
		t.Errorf("another account: %v", st.obstacle)
	}
}

// TestGravestObstacle: what keeps a key out longest is what stands in its way, not what is looked at first.
func TestGravestObstacle(t *testing.T) {
	for _, tc := range []struct {
		what     string
		verdicts []Verdict
		why      obstacle
		lasts    time.Duration
	}{
		{"a short rest and an open circuit", []Verdict{{Class: RateLimit, Scope: ScopeKey, Wait: 2 * time.Second}}, open, 30 * time.Second},
		{"a short rest of the model and an open circuit", []Verdict{{Class: RateLimit, Scope: ScopeModel, Wait: 2 * time.Second}}, open, 30 * time.Second},
		{"a short rest of the account and a bad credential", []Verdict{{Class: AuthError, Scope: ScopeKey}, {Class: RateLimit, Scope: ScopeAccount, Wait: 2 * time.Second}}, rejected, 10 * time.Minute},
		{"a short rest of the key and a missing model", []Verdict{{Class: ModelUnavailable, Scope: ScopeModel}, {Class: QuotaExhausted, Scope: ScopeKey, Wait: 2 * time.Second}}, modelGone, time.Minute},
	} {
		t.Run(tc.what, func(t *testing.T) {
			p := testPool(t, &Handler{Providers: []*Provider{testProvider("a", "k1")}, Circuit: &Circuit{Threshold: 1}})
			k, now := p.key("k1"), time.Now()
			for _, v := range tc.verdicts {
				attempted(k).record(v, 429, yes, now)
			}
			if st := k.look("m", nil, now); st.obstacle != tc.why || st.until.Sub(now) != tc.lasts {
				t.Errorf("%v for %v, want %v for %v", st.obstacle, st.until.Sub(now), tc.why, tc.lasts)
			}
		})
	}
}

// TestMaxInFlight: as many calls as the key may have, and no more.
func TestMaxInFlight(t *testing.T) {
	provider := testProvider("a", "k1")
	provider.Keys[0].MaxInFlight = 2
	p := testPool(t, &Handler{Providers: []*Provider{provider}})
	k, now := p.key("k1"), time.Now()
	for n, want := range []obstacle{free, free, busy, busy} {
		if got := k.claim(&visit{credential: k}, now).obstacle; got != want {
			t.Errorf("call %d: %v, want %v", n+1, got, want)
		}
	}
	if n := k.facts.inFlight.Add(-1); n != 1 {
		t.Errorf("%d left", n)
	}
	if got := k.claim(&visit{credential: k}, now).obstacle; got != free {
		t.Errorf("after one ended: %v", got)
	}
	k.facts.inFlight.Store(0)
}

// TestRoundRobinIsFair: also where each request is served by some keys only, and where a key is out.
func TestRoundRobinIsFair(t *testing.T) {
	a, b := testProvider("a", "a1", "a2"), testProvider("b", "b1", "b2", "b3")
	a.Models, b.Models = []Model{{Asked: "ma"}}, []Model{{Asked: "mb"}}
	p := testPool(t, &Handler{Providers: []*Provider{a, b}, Select: &Select{Policy: selectRoundRobin}})
	setDisabled([]*credential{p.key("b2")}, true)
	got := make(map[string]int)
	for range 300 {
		for _, model := range []string{"ma", "mb"} {
			cs := candidates{pool: p, dialect: "chat", model: model}
			v := cs.next(nil, time.Now(), anywhere)
			v.settle()
			got[v.name]++
		}
	}
	for _, name := range []string{"a1", "a2", "b1", "b3"} {
		if got[name] != 150 {
			t.Errorf("%s served %d of 300, want half: %v", name, got[name], got)
		}
	}
}

// TestRamp: after a success has ended a circuit's or a halt's time the key's share grows from a tenth to all of it, for
// as long as another key is free.
func TestRamp(t *testing.T) {
	for what, recover := range map[string]func(p *pool, now time.Time){
		"a key's circuit": func(p *pool, now time.Time) {
			k := p.credentials[0].facts
			k.update(func() {
				k.circuit.fault(ServerError, sequence.Load(), now.Add(-time.Hour), 1, time.Minute, nextSequence)
			})
		},
		"a rejected key": func(p *pool, now time.Time) {
			k := p.credentials[0].facts
			k.update(func() {
				k.rejected.halt(Verdict{Class: AuthError}, sequence.Load(), now.Add(-time.Hour), time.Minute, time.Minute, nextSequence)
			})
		},
		"an account's halt": func(p *pool, now time.Time) {
			p.credentials[0].account.facts.update(func(b *bench) {
				b.halt(Verdict{Class: BillingError}, sequence.Load(), now.Add(-time.Hour), time.Minute, time.Minute, nextSequence)
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			p := choosing(t, 2, selectFirst)
			p.policy.ramp = 10 * time.Second
			now := time.Now()
			share := func(after time.Duration) float64 {
				const picks = 4000
				n := 0
				for range picks {
					cs := candidates{pool: p, dialect: "chat"}
					v := cs.next(nil, now.Add(after), anywhere)
					if v.name == "k0" {
						n++
					}
					v.settle()
				}
				return float64(n) / picks
			}
			recover(p, now)
			cs := candidates{pool: p, dialect: "chat"}
			probe := cs.next(nil, now, anywhere)
			if probe.name != "k0" || !probe.probes {
				t.Fatalf("the probe goes to %s", probe.name)
			}
			if got := share(0); got != 0 {
				t.Errorf("during the probe: %v", got)
			}
			probe.started = sequence.Load()
			probe.recordSuccess(now)
			probe.release()
			probe.settle()
			for after, want := range map[time.Duration]float64{
				0: leastShare, time.Second: leastShare, 3 * time.Second: 0.3, 7 * time.Second: 0.7, 10 * time.Second: 1, time.Hour: 1,
			} {
				if got := share(after); got < want-0.03 || got > want+0.03 {
					t.Errorf("after %v: %v, want %v", after, got, want)
				}
			}
			p.credentials[1].named.disable(now)
			if got := share(0); got != 1 {
				t.Errorf("with no other key: %v", got)
			}
			p.credentials[1].named.enable()
			p.policy.ramp = 0
			if got := share(0); got != 1 {
				t.Errorf("without a ramp: %v", got)
			}
			p.policy.ramp = 10 * time.Second
			resetAll(p.providers, p.credentials, false)
			if got := share(0); got != 1 {
				t.Errorf("after an operator's reset: %v", got)
			}
		})
	}
}
