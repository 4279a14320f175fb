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
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// defaults is the policy of a pool with so many keys.
func defaults(keys int, change ...func(*policy)) *policy {
	h := &Handler{Providers: []*Provider{{Keys: make([]*Key, keys)}}}
	p := newPolicy(h)
	for _, c := range change {
		c(&p)
	}
	return &p
}

const milli = time.Millisecond

// What decide may answer, as the tables below write it.
var (
	stops = action{}
	late  = action{late: true}
	// The places of moves.
	elsewhere    = [2]where{otherAccount | otherProvider}
	aProvider    = [2]where{otherProvider}
	anyKey       = [2]where{anywhere}
	providerPref = [2]where{otherProvider, anywhere}
	accountPref  = [2]where{otherAccount | otherProvider, sameAccount}
)

func staysFor(d time.Duration) action { return action{do: stay, wait: d, draws: true} }

func staysCharged(d time.Duration) action {
	return action{do: stay, wait: d, charged: true, draws: true}
}

func passes(to [2]where) action { return action{do: move, to: to} }

// switches draws on the provider's budget, since the next key may be its own; leaves does not.
func switches(d time.Duration, to [2]where) action {
	return action{do: move, wait: d, to: to, charged: true, draws: true}
}

func leaves(d time.Duration, to [2]where) action {
	return action{do: move, wait: d, to: to, charged: true}
}

// TestDecide pins the table of DESIGN.md section 4: for each class, what is done when so much is free.
func TestDecide(t *testing.T) {
	const none, sibling, account, provider, both = where(0), sameAccount, otherAccount, otherProvider, sameAccount | otherProvider

	for _, tc := range []struct {
		class Class
		free  where
		want  action
	}{
		{RateLimit, none, staysFor(time.Second)},
		{RateLimit, sibling, staysFor(time.Second)},
		{RateLimit, account, passes(accountPref)},
		{RateLimit, provider, passes(accountPref)},
		{RateLimit, both, passes(accountPref)},

		{QuotaExhausted, none, stops},
		{QuotaExhausted, account, passes(elsewhere)},
		{QuotaExhausted, provider, passes(elsewhere)},
		{QuotaExhausted, sibling, stops},
		{BillingError, none, stops},
		{BillingError, sibling, stops},
		{BillingError, account, passes(elsewhere)},
		{BillingError, provider, passes(elsewhere)},

		{AuthError, none, stops},
		{AuthError, sibling, passes(anyKey)},
		{AuthError, provider, passes(anyKey)},

		{Timeout, none, stops},
		{Timeout, sibling, switches(500*milli, providerPref)},
		{Timeout, provider, leaves(500*milli, providerPref)},

		{ProviderUnavailable, none, stops},
		{ProviderUnavailable, sibling, stops},
		{ProviderUnavailable, account, stops},
		{ProviderUnavailable, provider, leaves(500*milli, aProvider)},

		{ServerError, none, staysCharged(500 * milli)},
		{ServerError, sibling, switches(500*milli, anyKey)},
		{ServerError, account, switches(500*milli, anyKey)},
		{ServerError, provider, leaves(500*milli, anyKey)},

		{Overloaded, none, staysFor(time.Second)},
		{Overloaded, sibling, staysFor(time.Second)},
		{Overloaded, account, staysFor(time.Second)},
		{Overloaded, provider, leaves(500*milli, providerPref)},

		{EmptyResponse, none, stops},
		{EmptyResponse, sibling, switches(500*milli, anyKey)},
		{EmptyResponse, provider, leaves(500*milli, anyKey)},

		{ModelUnavailable, none, staysFor(time.Second)},
		{ModelUnavailable, sibling, passes(anyKey)},
		{ModelUnavailable, provider, passes(anyKey)},

		{BadRequest, anywhere, stops},
		{ContentPolicy, anywhere, stops},
		{ContextOverflow, anywhere, stops},
		{Unknown, anywhere, stops},
	} {
		p := progress{attempts: 1, remaining: noDeadline}
		if got := decide(Verdict{Class: tc.class, Scope: scopes[tc.class]}, p, options{self: true, free: tc.free}, defaults(3), 0); got != tc.want {
			t.Errorf("%s with %03b free: %+v, want %+v", tc.class, tc.free, got, tc.want)
		}
	}
}

// TestDecideKnowsEveryClass: a class that the table forgot would be delivered as it is.
func TestDecideKnowsEveryClass(t *testing.T) {
	for _, c := range Classes {
		_, known := responses[c]
		if ends := c.Parent() == BadRequest; known == ends {
			t.Errorf("%s: known %v", c, known)
		}
	}
}

// TestDecideProgress pins what the progress of a request changes: each row is the defaults (three keys) but for what
// it says.
func TestDecideProgress(t *testing.T) {
	limited := func(hint time.Duration) Verdict { return Verdict{Class: RateLimit, Scope: ScopeKey, Wait: hint} }
	failed, gone := Verdict{Class: ServerError, Scope: ScopeKey}, Verdict{Class: ModelUnavailable, Scope: ScopeModel}
	free := func(w where) options { return options{self: true, free: w} }

	for _, tc := range []struct {
		what string
		v    Verdict
		p    progress
		o    options
		want action
	}{
		{"the second wait", limited(0), progress{repeats: 1}, free(0), staysFor(2 * time.Second)},
		{"the third wait", limited(0), progress{repeats: 2}, free(0), staysFor(4 * time.Second)},
		{"no fourth wait", limited(0), progress{repeats: 3}, free(0), stops},
		{"after its waits a key has cost as much as a fault", limited(0), progress{repeats: 3}, free(sameAccount), switches(500*milli, accountPref)},
		{"and the next one twice that", limited(0), progress{repeats: 3, retries: 1}, free(sameAccount), switches(time.Second, accountPref)},
		{"a better key came free while it waited", limited(0), progress{repeats: 2, retries: 2}, free(otherAccount), passes(accountPref)},
		{"no retries are left", limited(0), progress{repeats: 3, retries: 2}, free(sameAccount), stops},
		{"passing over needs none", limited(0), progress{retries: 9}, free(otherAccount), passes(accountPref)},

		{"a hint takes the wait's place", limited(3 * time.Second), progress{}, free(0), staysFor(3 * time.Second)},
		{"also a shorter one", limited(300 * milli), progress{repeats: 2}, free(0), staysFor(300 * milli)},
		{"a hint of just max_wait", limited(5 * time.Second), progress{}, free(0), staysFor(5 * time.Second)},
		{"a hint too long to wait for", limited(5*time.Second + 1), progress{}, free(0), stops},
		{"then a key of the same account is as good", limited(time.Minute), progress{}, free(sameAccount), passes(accountPref)},
		{"hints give no more waits than three", limited(time.Second), progress{repeats: 3}, free(0), stops},

		{"the key may not be asked again", limited(0), progress{}, options{}, stops},
		{"a failed probe gets no wait", limited(0), progress{probe: true}, free(0), stops},
		{"a failed probe passes", limited(0), progress{probe: true}, free(sameAccount), passes(accountPref)},
		{"a limit on this request's size is no matter of time", Verdict{Class: RateLimit, Scope: ScopeRequest}, progress{}, free(0), stops},
		{"and another account may have a larger one", Verdict{Class: RateLimit, Scope: ScopeRequest}, progress{}, free(otherAccount), passes(accountPref)},

		{"the model may come back", gone, progress{repeats: 2}, free(0), staysFor(4 * time.Second)},
		{"or not", gone, progress{repeats: 3}, free(0), stops},

		{"a lone key again, and again", failed, progress{retries: 1}, free(0), staysCharged(time.Second)},
		{"but not for ever", failed, progress{retries: 2}, free(0), stops},
		{"a failed probe is not asked again", failed, progress{probe: true}, free(0), stops},
		{"the last charged switch", failed, progress{retries: 1}, free(anywhere), switches(time.Second, anyKey)},
		{"no more of them", failed, progress{retries: 2}, free(anywhere), stops},

		{"overload: one wait", Verdict{Class: Overloaded, Scope: ScopeProvider}, progress{repeats: 1}, free(0), stops},
		{"overload: then a sibling", Verdict{Class: Overloaded, Scope: ScopeProvider}, progress{repeats: 1}, free(sameAccount), switches(500*milli, providerPref)},
		{"overload with a hint", Verdict{Class: Overloaded, Scope: ScopeProvider, Wait: 2 * time.Second}, progress{}, free(0), staysFor(2 * time.Second)},
		{"overload with a long one", Verdict{Class: Overloaded, Scope: ScopeProvider, Wait: time.Minute}, progress{}, free(0), stops},

		{"it cannot be sent again", limited(0), progress{final: true}, free(anywhere), stops},
		{"the hard cap", limited(0), progress{attempts: 48}, free(anywhere), stops},
		{"one below it", limited(0), progress{attempts: 47}, free(otherAccount), passes(accountPref)},

		{"the window is over", limited(0), progress{elapsed: time.Minute + 1}, free(otherAccount), stops},
		{"just not over", limited(0), progress{elapsed: time.Minute}, free(otherAccount), passes(accountPref)},
		{"a wait would end after it", limited(0), progress{elapsed: 59*time.Second + 1}, free(0), stops},
		{"a wait ends with it", limited(0), progress{elapsed: 59 * time.Second}, free(0), staysFor(time.Second)},
		{"too late to wait, not to switch", limited(0), progress{repeats: 2, elapsed: 58 * time.Second}, free(sameAccount), switches(500*milli, accountPref)},

		{"no time left before the deadline", failed, progress{remaining: 1500 * milli}, free(anywhere), late},
		{"enough of it", failed, progress{remaining: 1500*milli + 1}, free(anywhere), switches(500*milli, anyKey)},
		{"a wait would take it", limited(0), progress{remaining: 2 * time.Second}, free(0), late},
		{"a wait leaves enough", limited(0), progress{remaining: 2*time.Second + 1}, free(0), staysFor(time.Second)},
		{"the deadline has passed", limited(0), progress{remaining: -time.Second}, free(otherProvider), late},
		{"nothing is left to try, whenever", limited(0), progress{remaining: -time.Second}, options{}, stops},
	} {
		if tc.p.remaining == 0 {
			tc.p.remaining = noDeadline
		}
		if got := decide(tc.v, tc.p, tc.o, defaults(3), 0); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.what, got, tc.want)
		}
	}
}

// TestDecideConfigured pins what the words of `retry` change.
func TestDecideConfigured(t *testing.T) {
	only := func(set *map[Class]bool, cs ...Class) { *set = classSet(cs) }
	for _, tc := range []struct {
		what   string
		class  Class
		free   where
		change func(*policy)
		want   action
	}{
		{"a class that is not listed", Timeout, anywhere, func(p *policy) { only(&p.on, RateLimit) }, stops},
		{"a finer class of a listed one", QuotaExhausted, otherAccount, func(p *policy) { only(&p.on, BillingError) }, passes(elsewhere)},
		{"a finer class alone", EmptyResponse, sameAccount, func(p *policy) { only(&p.on, EmptyResponse) }, switches(500*milli, anyKey)},
		{"and not its parent", ServerError, sameAccount, func(p *policy) { only(&p.on, EmptyResponse) }, stops},
		{"bad_request, even if listed", BadRequest, anywhere, func(p *policy) { only(&p.on, BadRequest) }, stops},
		{"its finer classes, even if listed", ContentPolicy, anywhere, func(p *policy) { only(&p.on, ContentPolicy) }, stops},
		{"unknown, only if listed", Unknown, anywhere, func(p *policy) { only(&p.on, Unknown) }, switches(500*milli, anyKey)},

		{"same_key_on without rate_limit", RateLimit, 0, func(p *policy) { only(&p.sameKeyOn, ModelUnavailable) }, stops},
		{"same_key_on names exact classes", EmptyResponse, 0, func(p *policy) { only(&p.sameKeyOn, ServerError) }, stops},
		{"same_key_on server_error", ServerError, 0, func(p *policy) { only(&p.sameKeyOn, ServerError) }, staysFor(time.Second)},
		{"same_key_on timeout, only while nothing else is free", Timeout, sameAccount, func(p *policy) { only(&p.sameKeyOn, Timeout) }, switches(500*milli, providerPref)},
		{"same_key_on timeout", Timeout, 0, func(p *policy) { only(&p.sameKeyOn, Timeout) }, staysFor(time.Second)},
		{"same_key of one's own", RateLimit, 0, func(p *policy) { p.sameKey = []time.Duration{7 * milli} }, staysFor(7 * milli)},
		{"same_key beyond max_wait", RateLimit, 0, func(p *policy) { p.maxWait = time.Second - 1 }, stops},
		{"no charged retries", ServerError, anywhere, func(p *policy) { p.maxRetries = 0 }, stops},
		{"a backoff of one's own", ServerError, anywhere, func(p *policy) { p.backoff = 9 * milli }, switches(9*milli, anyKey)},
	} {
		p := progress{attempts: 1, remaining: noDeadline}
		if got := decide(Verdict{Class: tc.class, Scope: scopes[tc.class]}, p, options{self: true, free: tc.free}, defaults(3, tc.change), 0); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.what, got, tc.want)
		}
	}
}

// TestDecideSpent: with the provider's budget spent only what is free of charge is left, and other providers.
func TestDecideSpent(t *testing.T) {
	const own = sameAccount | otherAccount
	onlyProvider := [2]where{otherProvider, otherProvider}
	for _, tc := range []struct {
		class   Class
		repeats int
		free    where
		want    action
	}{
		{RateLimit, 0, 0, stops},
		{RateLimit, 0, sameAccount, passes(accountPref)},
		{RateLimit, 0, otherAccount, passes(accountPref)},
		{RateLimit, 3, sameAccount, stops},
		{ModelUnavailable, 0, 0, stops},
		{ServerError, 0, 0, stops},
		{ServerError, 0, own, stops},
		{ServerError, 0, anywhere, leaves(500*milli, aProvider)},
		{Timeout, 0, own, stops},
		{Timeout, 0, anywhere, leaves(500*milli, onlyProvider)},
		{ProviderUnavailable, 0, anywhere, leaves(500*milli, aProvider)},
		{Overloaded, 0, own, stops},
		{AuthError, 0, own, passes(anyKey)},
	} {
		v, p := Verdict{Class: tc.class, Scope: scopes[tc.class]}, progress{attempts: 1, repeats: tc.repeats, remaining: noDeadline}
		if got := decide(v, p, options{self: true, free: tc.free, spent: true}, defaults(3), 0); got != tc.want {
			t.Errorf("%s with %03b free: %+v, want %+v", tc.class, tc.free, got, tc.want)
		}
	}
}

// TestAdmit: a new request waits for what merely cools and is back soon, and for nothing else.
func TestAdmit(t *testing.T) {
	now := time.Now()
	to := [2]where{anywhere}
	for _, tc := range []struct {
		what string
		back time.Duration // of the first cooling key; 0: none cools
		free where
		p    progress
		want action
	}{
		{"nothing cools", 0, 0, progress{}, stops},
		{"back soon", 3 * time.Second, 0, progress{}, action{do: move, wait: 3 * time.Second, to: to}},
		{"back just in time", 5 * time.Second, 0, progress{}, action{do: move, wait: 5 * time.Second, to: to}},
		{"back too late", 5*time.Second + 1, 0, progress{}, stops},
		{"it has waited before", 3 * time.Second, 0, progress{elapsed: 2*time.Second + 1}, stops},
		{"two waits within max_wait", 3 * time.Second, 0, progress{elapsed: 2 * time.Second}, action{do: move, wait: 3 * time.Second, to: to}},
		{"one came free meanwhile", 3 * time.Second, sameAccount, progress{elapsed: time.Second}, action{do: move, to: to}},
		{"the deadline", 3 * time.Second, 0, progress{remaining: 4 * time.Second}, stops},
		{"before the deadline", 3 * time.Second, 0, progress{remaining: 4*time.Second + 1}, action{do: move, wait: 3 * time.Second, to: to}},
		{"the window", 0, sameAccount, progress{elapsed: time.Minute + 1}, stops},
	} {
		s := survey{free: tc.free}
		if tc.back > 0 {
			s.cooling = now.Add(tc.back)
		}
		if tc.p.remaining == 0 {
			tc.p.remaining = noDeadline
		}
		if got := admit(s, now, tc.p, defaults(3), 0); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.what, got, tc.want)
		}
	}
}

// TestAdmitTogether: those who wait for one key come back one after the other, none too early, and none too late for
// what it may wait.
func TestAdmitTogether(t *testing.T) {
	now := time.Now()
	s := survey{cooling: now.Add(4 * time.Second)}
	for _, tc := range []struct {
		jitter float64
		want   time.Duration
	}{{0, 4 * time.Second}, {0.5, 4500 * milli}, {1, 5 * time.Second}} {
		if got := admit(s, now, progress{remaining: noDeadline}, defaults(3), tc.jitter); got.wait != tc.want {
			t.Errorf("jitter %v: %v, want %v", tc.jitter, got.wait, tc.want)
		}
	}
}

// TestQueueIsForWaiting: with a queue a limited key may be waited for as long as its wait, any other no longer than before.
func TestQueueIsForWaiting(t *testing.T) {
	now := time.Now()
	queue := defaults(3)
	queue.gate = gateLimits{inside: 10, queue: 10, wait: 20 * time.Second}
	cooling := survey{cooling: now.Add(19 * time.Second)}
	limited := Verdict{Class: RateLimit, Scope: ScopeKey, Wait: 19 * time.Second}
	gone := Verdict{Class: ModelUnavailable, Scope: ScopeModel, Wait: 19 * time.Second}
	p := progress{attempts: 1, remaining: noDeadline}
	for _, tc := range []struct {
		what string
		got  action
		want verb
	}{
		{"a cooling key, without a queue", admit(cooling, now, p, defaults(3), 0), stop},
		{"a cooling key", admit(cooling, now, p, queue, 0), move},
		{"one that is back too late", admit(survey{cooling: now.Add(21 * time.Second)}, now, p, queue, 0), stop},
		{"its own key's hint, without a queue", decide(limited, p, options{self: true}, defaults(3), 0), stop},
		{"its own key's hint", decide(limited, p, options{self: true}, queue, 0), stay},
		{"a model's", decide(gone, p, options{self: true}, queue, 0), stop},
	} {
		if tc.got.do != tc.want {
			t.Errorf("%s: %v, want %v", tc.what, tc.got.do, tc.want)
		}
	}
}

// TestBackoff: 500 milli × 2ⁿ, at most the cap and max_wait; jitter only adds, and never beyond max_wait.
func TestBackoff(t *testing.T) {
	plain := func(*policy) {}
	for _, tc := range []struct {
		n      int
		jitter float64
		change func(*policy)
		want   time.Duration
	}{
		{0, 0, plain, 500 * milli},
		{1, 0, plain, time.Second},
		{2, 0, plain, 2 * time.Second},
		{3, 0, plain, 4 * time.Second},
		{4, 0, plain, 5 * time.Second}, // max_wait
		{1000, 0, plain, 5 * time.Second},
		{9, 0, func(p *policy) { p.maxWait = time.Minute }, 8 * time.Second},
		{0, 1, plain, 625 * milli},
		{1, 0.5, plain, 1125 * milli},
		{3, 1, plain, 5 * time.Second},
		{4, 1, plain, 5 * time.Second},
		{3, 0.5, plain, 4500 * milli},
		{0, 1, func(p *policy) { p.jitter = 0 }, 500 * milli},
		{0, 1, func(p *policy) { p.jitter = 1 }, time.Second},
	} {
		if got := defaults(3, tc.change).backoffWait(tc.n, tc.jitter); got != tc.want {
			t.Errorf("after %d switches, jitter %v: %v, want %v", tc.n, tc.jitter, got, tc.want)
		}
	}
}

// TestPolicyDefaults: what depends on the number of keys, and what a given zero means.
func TestPolicyDefaults(t *testing.T) {
	for _, tc := range []struct{ keys, retries, attempts int }{
		{1, 1, 32}, {2, 1, 40}, {3, 2, 48}, {4, 3, 56}, {9, 3, 96}, {17, 3, 160}, {1000, 3, 160},
	} {
		if p := defaults(tc.keys); p.maxRetries != tc.retries || p.maxAttempts != tc.attempts {
			t.Errorf("%d keys: %d retries, %d attempts", tc.keys, p.maxRetries, p.maxAttempts)
		}
	}
	none, calm := 0, 0.0
	p := newPolicy(&Handler{Retry: &Retry{MaxRetries: &none, Jitter: &calm, SameKey: []caddy.Duration{5}}})
	if p.maxRetries != 0 || p.jitter != 0 || len(p.sameKey) != 1 {
		t.Errorf("%+v", p)
	}
}

// TestSameKeyOff: a pool may do without any wait on the same key.
func TestSameKeyOff(t *testing.T) {
	pol := newPolicy(&Handler{Retry: &Retry{SameKey: []caddy.Duration{sameKeyOff}}})
	if got := decide(Verdict{Class: RateLimit, Scope: ScopeKey}, progress{attempts: 1, remaining: noDeadline}, options{self: true}, &pol, 0); got.do != stop {
		t.Errorf("%+v", got)
	}
}
