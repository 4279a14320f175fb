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
	"testing"
	"time"
)

// attempted is a visit to a key whose attempt begins now.
func attempted(c *credential) *visit {
	return &visit{credential: c, model: "m", started: sequence.Load()}
}

func yes() bool { return true }
func no() bool  { return false }

// twoAccounts is a pool of three keys of one provider, of which k1 and k2 share an account, and one of another.
func twoAccounts(t *testing.T) *pool {
	a, b := testProvider("a", "k1", "k2", "k3"), testProvider("b", "k4")
	a.Keys[0].Account, a.Keys[1].Account = "team", "team"
	return testPool(t, &Handler{Providers: []*Provider{a, b}})
}

// standings says what stands in the way of each key of a pool, for a model.
func standings(p *pool, now time.Time) (all [4]obstacle) {
	cs := candidates{pool: p, dialect: "chat", model: "m"}
	for i, c := range p.credentials {
		all[i] = cs.standing(c, now).obstacle
	}
	return all
}

// TestRecord pins the columns "circuit" and "bench" of the table in DESIGN.md section 4.
func TestRecord(t *testing.T) {
	none := [4]obstacle{}
	keyOnly := func(o obstacle) [4]obstacle { return [4]obstacle{o} }
	team := func(o obstacle) [4]obstacle { return [4]obstacle{o, o} }
	allOfA := [4]obstacle{halted, halted, halted}

	for _, tc := range []struct {
		verdict Verdict
		others  bool // another provider can serve
		faults  int  // what the circuit counts
		lasts   time.Duration
		want    [4]obstacle
	}{
		{Verdict{Class: RateLimit, Scope: ScopeKey}, true, 1, 0, none},
		{Verdict{Class: RateLimit, Scope: ScopeKey, Wait: 8 * time.Second}, true, 1, 8 * time.Second, keyOnly(cooling)},
		{Verdict{Class: RateLimit, Scope: ScopeModel}, true, 1, 0, none},
		{Verdict{Class: RateLimit, Scope: ScopeModel, Wait: 8 * time.Second}, true, 1, 8 * time.Second, keyOnly(cooling)},
		{Verdict{Class: RateLimit, Scope: ScopeAccount}, true, 1, 0, none},
		{Verdict{Class: RateLimit, Scope: ScopeAccount, Wait: 8 * time.Second}, true, 1, 8 * time.Second, team(cooling)},
		{Verdict{Class: RateLimit, Scope: ScopeRequest, Wait: 8 * time.Second}, true, 0, 0, none},

		{Verdict{Class: QuotaExhausted, Scope: ScopeAccount}, true, 0, time.Minute, team(halted)},
		{Verdict{Class: QuotaExhausted, Scope: ScopeAccount, Wait: 30 * time.Minute}, true, 0, 30 * time.Minute, team(halted)},
		{Verdict{Class: QuotaExhausted, Scope: ScopeAccount, Wait: 30 * time.Hour}, true, 0, time.Hour, team(halted)},
		{Verdict{Class: QuotaExhausted, Scope: ScopeModel, Wait: 30 * time.Hour}, true, 0, time.Hour, keyOnly(cooling)},
		{Verdict{Class: QuotaExhausted, Scope: ScopeModel}, true, 0, time.Minute, keyOnly(cooling)},
		{Verdict{Class: BillingError, Scope: ScopeAccount}, true, 0, time.Minute, team(halted)},
		{Verdict{Class: BillingError, Scope: ScopeModel}, true, 0, time.Minute, keyOnly(cooling)},

		{Verdict{Class: AuthError, Scope: ScopeKey}, true, 0, 10 * time.Minute, keyOnly(rejected)},
		{Verdict{Class: AuthError, Scope: ScopeAccount}, true, 0, time.Minute, team(halted)},
		{Verdict{Class: AuthError, Scope: ScopeProvider}, true, 0, time.Minute, allOfA},

		{Verdict{Class: Timeout, Scope: ScopeKey}, true, 1, 0, none},
		{Verdict{Class: ServerError, Scope: ScopeKey}, true, 1, 0, none},
		{Verdict{Class: ProviderUnavailable, Scope: ScopeProvider}, true, 1, time.Minute, allOfA},
		{Verdict{Class: ProviderUnavailable, Scope: ScopeProvider}, false, 1, time.Minute, allOfA},
		{Verdict{Class: Overloaded, Scope: ScopeProvider}, true, 0, 5 * time.Second, allOfA},
		{Verdict{Class: Overloaded, Scope: ScopeProvider, Wait: 20 * time.Second}, true, 0, 20 * time.Second, allOfA},
		{Verdict{Class: Overloaded, Scope: ScopeProvider}, false, 0, 0, none},

		{Verdict{Class: EmptyResponse, Scope: ScopeNone}, true, 0, 0, none},
		{Verdict{Class: ModelUnavailable, Scope: ScopeModel}, true, 0, time.Minute, keyOnly(modelGone)},
		{Verdict{Class: BadRequest, Scope: ScopeRequest}, true, 0, 0, none},
		{Verdict{Class: ContextOverflow, Scope: ScopeRequest}, true, 0, 0, none},
		{Verdict{Class: ContentPolicy, Scope: ScopeRequest}, true, 0, 0, none},
		{Verdict{Class: Unknown, Scope: ScopeNone}, true, 0, 0, none},
	} {
		t.Run(fmt.Sprintf("%s %s %v %v", tc.verdict.Class, tc.verdict.Scope, tc.verdict.Wait, tc.others), func(t *testing.T) {
			p := twoAccounts(t)
			now := time.Now()
			others := no
			if tc.others {
				others = yes
			}
			k1 := p.key("k1")
			attempted(k1).record(tc.verdict, 400, others, now)
			if got := standings(p, now); got != tc.want {
				t.Errorf("in the way: %v, want %v", got, tc.want)
			}
			if tc.lasts > 0 {
				if st := (&candidates{pool: p, dialect: "chat", model: "m"}).standing(k1, now); st.until.Sub(now) != tc.lasts {
					t.Errorf("for %v, want %v", st.until.Sub(now), tc.lasts)
				}
			}
			if n := k1.facts.circuit.failures; n != tc.faults {
				t.Errorf("%d faults, want %d", n, tc.faults)
			}
			charged := uint64(0)
			if tc.verdict.charged() {
				charged = 1
			}
			if n := k1.facts.failures.Load(); n != charged {
				t.Errorf("%d failures counted, want %d", n, charged)
			}
			for _, name := range []string{"k2", "k3", "k4"} {
				if f := p.key(name).facts; f.circuit.failures != 0 || f.failures.Load() != 0 || f.lastError.class != "" {
					t.Errorf("%s answers for k1", name)
				}
			}
		})
	}
}

// TestVisitChargesOnce: one visit is one fault, however often it asked.
func TestVisitChargesOnce(t *testing.T) {
	p, now := twoAccounts(t), time.Now()
	v := attempted(p.key("k1"))
	for range 4 {
		v.started = sequence.Load()
		v.record(Verdict{Class: RateLimit, Scope: ScopeKey}, 429, yes, now)
	}
	if n := p.key("k1").facts.circuit.failures; n != 1 {
		t.Errorf("%d faults", n)
	}
	if n := p.key("k1").facts.failures.Load(); n != 4 {
		t.Errorf("%d failures", n)
	}
}

// TestOwnBenchesDoNotStop: a visit may finish its waits although its own failures set the key aside; others may not
// pass, and what another visit brought about holds for it too.
func TestOwnBenchesDoNotStop(t *testing.T) {
	for _, v := range []Verdict{
		{Class: RateLimit, Scope: ScopeKey, Wait: 4 * time.Second},
		{Class: RateLimit, Scope: ScopeModel, Wait: 4 * time.Second},
		{Class: RateLimit, Scope: ScopeAccount, Wait: 4 * time.Second},
		{Class: ModelUnavailable, Scope: ScopeModel},
		{Class: ServerError, Scope: ScopeKey},
	} {
		h := &Handler{Pool: "own-" + string(v.Class) + "-" + string(v.Scope), Providers: []*Provider{testProvider("a", "k1")}, Circuit: &Circuit{Threshold: 1}}
		p, now := testPool(t, h), time.Now()
		own, other := attempted(p.key("k1")), attempted(p.key("k1"))
		own.record(v, 429, no, now)
		if got := own.look("m", own, now).obstacle; got != free {
			t.Errorf("%s of %s: %v is in its own way", v.Class, v.Scope, got)
		}
		if got := other.look("m", other, now).obstacle; got == free {
			t.Errorf("%s of %s: nothing is in another's way", v.Class, v.Scope)
		}
	}
}

// TestOthersLongerBenchStops: a shorter hint of one's own does not make another's longer bench one's own.
func TestOthersLongerBenchStops(t *testing.T) {
	for _, scope := range []Scope{ScopeKey, ScopeModel} {
		p, now := testPool(t, &Handler{Pool: "longer-" + string(scope), Providers: []*Provider{testProvider("a", "k1")}}), time.Now()
		own, other := attempted(p.key("k1")), attempted(p.key("k1"))
		other.record(Verdict{Class: RateLimit, Scope: scope, Wait: time.Minute}, 429, no, now)
		own.record(Verdict{Class: RateLimit, Scope: scope, Wait: 2 * time.Second}, 429, no, now)
		if got := own.look("m", own, now).obstacle; got != cooling {
			t.Errorf("%s: %v, want %v", scope, got, cooling)
		}
	}
}

// TestAllKeysLimited: the halt of a provider whose keys are all limited begins when a request leaves the last one.
func TestAllKeysLimited(t *testing.T) {
	limited := Verdict{Class: RateLimit, Scope: ScopeKey}
	limit := func(p *pool, names ...string) (v *visit) {
		for _, n := range names {
			v = attempted(p.key(n))
			v.record(limited, 429, yes, time.Now())
		}
		return v
	}
	for _, tc := range []struct {
		what   string
		before func(*pool) *visit
		halted bool
	}{
		{"all of them", func(p *pool) *visit { return limit(p, "k1", "k2", "k3") }, true},
		{"not all", func(p *pool) *visit { return limit(p, "k1", "k3") }, false},
		{"one is disabled", func(p *pool) *visit {
			setDisabled([]*credential{p.key("k2")}, true)
			t.Cleanup(func() { setDisabled([]*credential{p.key("k2")}, false) })
			return limit(p, "k1", "k2", "k3")
		}, false},
		{"one is rejected", func(p *pool) *visit {
			attempted(p.key("k2")).record(Verdict{Class: AuthError, Scope: ScopeKey}, 401, yes, time.Now())
			return limit(p, "k1", "k3")
		}, false},
		{"one has no money", func(p *pool) *visit {
			v := limit(p, "k1", "k2", "k3")
			attempted(p.key("k3")).record(Verdict{Class: BillingError, Scope: ScopeAccount}, 402, yes, time.Now())
			return v
		}, false},
		{"one said when", func(p *pool) *visit {
			v := limit(p, "k1", "k2")
			attempted(p.key("k3")).record(Verdict{Class: RateLimit, Scope: ScopeKey, Wait: time.Minute}, 429, yes, time.Now())
			return v
		}, false},
		{"one was served since", func(p *pool) *visit {
			v := limit(p, "k1", "k2", "k3")
			attempted(p.key("k1")).recordSuccess(time.Now())
			return v
		}, false},
	} {
		t.Run(tc.what, func(t *testing.T) {
			p := twoAccounts(t)
			v := tc.before(p)
			if p.key("k1").provider.facts.look().reason != "" {
				t.Error("halted before the request left")
			}
			now := time.Now()
			v.recordLeft(limited, now)
			b := p.key("k1").provider.facts.look()
			if b.active(now) != tc.halted || tc.halted && b.until.Sub(now) != 30*time.Second {
				t.Errorf("%+v", b)
			}
		})
	}
}

// TestSuccessClearsItsOwn: the key, its account and its provider, and nobody else's.
func TestSuccessClearsItsOwn(t *testing.T) {
	p, now := twoAccounts(t), time.Now()
	for _, c := range p.credentials {
		for _, v := range []Verdict{
			{Class: RateLimit, Scope: ScopeKey, Wait: time.Minute},
			{Class: AuthError, Scope: ScopeKey},
			{Class: BillingError, Scope: ScopeAccount},
			{Class: ProviderUnavailable, Scope: ScopeProvider},
			{Class: ModelUnavailable, Scope: ScopeModel},
		} {
			attempted(c).record(v, 0, yes, now)
		}
	}
	attempted(p.key("k1")).recordSuccess(now)
	k1, k2, k3, k4 := p.key("k1"), p.key("k2"), p.key("k3"), p.key("k4")
	if k1.facts.troubled.Load() || k1.account.facts.troubled.Load() || k1.provider.facts.troubled.Load() {
		t.Error("something of its own is left")
	}
	if !k2.facts.troubled.Load() || !k3.facts.troubled.Load() || !k3.account.facts.troubled.Load() || !k4.facts.troubled.Load() || !k4.provider.facts.troubled.Load() {
		t.Error("something of another's is gone")
	}
}

// TestStaleEvidence: after a success or an operator's reset, attempts from before it move nothing.
func TestStaleEvidence(t *testing.T) {
	p, now := twoAccounts(t), time.Now()
	k1 := p.key("k1")
	attempted(k1).record(Verdict{Class: ServerError, Scope: ScopeKey}, 500, yes, now)
	old := attempted(k1)
	resetAll(p.providers, p.credentials, false)
	for _, v := range []Verdict{
		{Class: ServerError, Scope: ScopeKey},
		{Class: AuthError, Scope: ScopeKey},
		{Class: BillingError, Scope: ScopeAccount},
		{Class: QuotaExhausted, Scope: ScopeAccount, Wait: time.Hour},
		{Class: ProviderUnavailable, Scope: ScopeProvider},
	} {
		old.charged = false
		old.record(v, 500, yes, now)
		if got := standings(p, now); got != [4]obstacle{} {
			t.Errorf("%s: %v", v.Class, got)
		}
	}
	if n := k1.facts.circuit.failures; n != 0 {
		t.Errorf("%d faults", n)
	}
}

// TestModelsAreBounded: of too many models the one that ends first gives way.
func TestModelsAreBounded(t *testing.T) {
	p, now := twoAccounts(t), time.Now()
	f := p.key("k1").facts
	for i := range 3 * maxModels {
		v := attempted(p.key("k1"))
		v.model = fmt.Sprint("m", i)
		v.record(Verdict{Class: ModelUnavailable, Scope: ScopeModel}, 404, yes, now.Add(time.Duration(i)*time.Millisecond))
		if len(f.models) > maxModels {
			t.Fatal(len(f.models))
		}
	}
	for i := 2 * maxModels; i < 3*maxModels; i++ {
		if _, known := f.models[fmt.Sprint("m", i)]; !known {
			t.Errorf("m%d gave way", i)
		}
	}
	attempted(p.key("k1")).recordSuccess(now.Add(time.Hour))
	if len(f.models) != 0 {
		t.Errorf("%d models are remembered that are over", len(f.models))
	}
}
