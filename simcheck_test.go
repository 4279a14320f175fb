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
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What must hold whatever the upstreams do (DESIGN.md section 5), computed here from what went to and fro.

// simCall is one call that reached a scripted upstream.
type simCall struct {
	request  *simRequest
	key      *credential
	model    string // as sent
	outcome  simOutcome
	began    time.Time
	answered time.Time // when its headers left
	ended    time.Time // zero: not yet
	whole    time.Time // when all of an answer had been read that stays open
	resent   bool      // it died with a kept connection, and was made once more
	class    Class     // what it came to be
	scope    Scope
	limit    *limitError // which ended it
}

// called notes a call, and that it may be made.
func (s *sim) called(r *http.Request, body []byte) *simCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, _ := strconv.Atoi(r.Header.Get("X-Sim"))
	req := s.requests[n]
	c := &simCall{request: req, began: time.Now(), key: s.credentialOf(r, req)}
	c.model = c.key.provider.sentModel(req.model)
	id := fmt.Sprintf("answer-%d-%d", n, len(req.calls))
	c.outcome = simOutcomes(s.scripts[c.key.name], req.dialect, req.streams, req.generates, c.model, id)
	if s.well {
		c.outcome = simGood(s.rng, req.dialect, req.streams, req.generates, id)
		for i := range c.outcome.parts {
			c.outcome.parts[i].delay = 0
		}
	}
	last := req.last()
	for last != nil && last.resent && c.outcome.stale {
		c.outcome = simOutcomes(s.scripts[c.key.name], req.dialect, req.streams, req.generates, c.model, id)
	}
	want := strings.Replace(req.body, strconv.Quote(req.model), strconv.Quote(c.model), 1)
	if string(body) != want {
		s.fault(req, "sent %q instead of %q", body, want)
	}
	if last == nil || !last.resent {
		s.mayBegin(c)
	}
	req.calls = append(req.calls, c)
	s.calls = append(s.calls, c)
	return c
}

func (s *sim) credentialOf(r *http.Request, req *simRequest) *credential {
	for _, c := range req.pool.credentials {
		carried := r.Header.Get("Authorization") + r.Header.Get("X-Api-Key") + r.Header.Get("X-Goog-Api-Key")
		if strings.TrimPrefix(carried, "Bearer ") == c.secret.value {
			if c.provider.base.Host != r.URL.Host {
				s.fault(req, "the secret of %s went to %s", c.name, r.URL.Host)
			}
			return c
		}
	}
	panic("a call without a credential")
}

// ended notes that a call is over, and what it came to be. Whole: all of its answer was read.
func (s *sim) ended(c *simCall, cause error, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.ended.IsZero() {
		return
	}
	c.ended = time.Now()
	c.class, c.scope = c.outcome.class, c.outcome.scope
	c.resent = c.outcome.stale && c.request.repeatable && cause == c.outcome.err
	switch {
	case c.resent, c.request.Context().Err() != nil:
		c.class, c.scope = "", ScopeNone
	case whole && c.outcome.kind == "good": // what ended it is the drain of the connection
	case errors.As(cause, &c.limit):
		c.class, c.scope = Timeout, ScopeKey
	case c.outcome.late != "":
		c.class, c.scope = c.outcome.late, ScopeKey
	}
}

// mayBegin checks all that must hold when an attempt begins.
func (s *sim) mayBegin(c *simCall) {
	req, pol := c.request, &c.request.pool.policy
	if req.w.committed() {
		s.fault(req, "called %s after the answer began", c.key.name)
	}
	if req.Context().Err() != nil {
		s.fault(req, "called %s for a caller who has left", c.key.name)
	}
	if since := c.began.Sub(req.arrived); since > pol.window {
		s.fault(req, "an attempt %v after arrival, with a window of %v", since, pol.window)
	}
	if pol.deadline > 0 && !c.began.Add(pol.minAttempt).Before(req.arrived.Add(pol.deadline)) {
		s.fault(req, "an attempt %v after arrival cannot finish before %v", c.began.Sub(req.arrived), pol.deadline)
	}
	if !c.key.serves(req.dialect, req.model) {
		s.fault(req, "%s does not serve %s %s", c.key.name, req.dialect, req.model)
	}
	if why, _ := s.obstacle(c.key, c.model, c); why != "" {
		s.fault(req, "called %s: %s", c.key.name, why)
	}
	inside := map[*simRequest]bool{req: true}
	for _, o := range s.calls {
		if o.ended.IsZero() {
			inside[o.request] = true
		}
	}
	if limit := pol.gate.inside; limit > 0 && len(inside) > limit {
		s.fault(req, "%d requests are under way, with a limit of %d", len(inside), limit)
	}
	s.mayFollow(c)
	s.benchesExplained(req.pool)
}

// mayFollow checks what of the request's earlier attempts keeps a further one from being made.
func (s *sim) mayFollow(c *simCall) {
	req, pol := c.request, &c.request.pool.policy
	attempts, charged, repeats := 0, 0, 0
	visited := map[string]bool{}
	var last *simCall
	for _, earlier := range req.calls {
		if earlier.resent {
			continue
		}
		attempts++
		switch {
		case last != nil && last.key.name == earlier.key.name:
			repeats++
		default:
			repeats = 0
		}
		if last != nil && simCharges(last, earlier) {
			charged++
		}
		visited[earlier.key.name] = true
		last = earlier
	}
	if attempts >= pol.maxAttempts {
		s.fault(req, "attempt %d", attempts+1)
	}
	if last == nil {
		return
	}
	gap := c.began.Sub(last.ended)
	if simCharges(last, c) {
		least := min(pol.backoff<<min(charged, 20), pol.backoffCap, pol.maxWait)
		if charged++; charged > pol.maxRetries {
			s.fault(req, "charged retry %d of %d", charged, pol.maxRetries)
		}
		if gap < least {
			s.fault(req, "after %s only %v", last.class, gap)
		}
	}
	if !pol.on[last.class] && !pol.on[last.class.Parent()] || last.class.Parent() == BadRequest {
		s.fault(req, "called %s after %s", c.key.name, last.class)
	}
	if !req.repeatable && (last.outcome.unknown || last.limit != nil) {
		s.fault(req, "sent twice although %q may have been done", last.outcome.kind)
	}
	if last.key.name != c.key.name {
		if visited[c.key.name] {
			s.fault(req, "%s is visited twice", c.key.name)
		}
		switch {
		case (last.class == BillingError || last.class == QuotaExhausted) && last.scope == ScopeAccount && last.key.account == c.key.account:
			s.fault(req, "the same account after %s", last.class)
		case last.class == ProviderUnavailable && last.key.provider == c.key.provider:
			s.fault(req, "the same provider after %s", last.class)
		}
		return
	}
	switch last.class {
	case RateLimit, ModelUnavailable:
		if repeats >= len(pol.sameKey)+charged {
			s.fault(req, "repeat %d of %d on %s", repeats+1, len(pol.sameKey), c.key.name)
		}
		least := pol.sameKey[min(repeats, len(pol.sameKey)-1)]
		if last.hint() > 0 {
			least = last.hint()
		}
		if gap < least || gap > max(pol.maxWait, pol.gate.wait) {
			s.fault(req, "%s was given %v instead of %v", c.key.name, gap, least)
		}
	case Overloaded, ServerError:
	default:
		s.fault(req, "%s again after %s", c.key.name, last.class)
	}
}

// simCharges reports whether the step from one attempt to the next is one of max_retries, as far as can be told.
func simCharges(last, next *simCall) bool {
	switch last.class {
	case ServerError, Timeout, EmptyResponse, ProviderUnavailable:
		return true
	case Overloaded:
		return last.key.name != next.key.name
	}
	return false
}

func (c *simCall) hint() time.Duration {
	if c.limit != nil {
		return 0
	}
	return c.outcome.hint
}

// obstacle says why a key may not be called for a model now, or "". With a call, what its own visit brought about and
// the probe that it is are no obstacles. Until is when the obstacle ends; zero: not known.
func (s *sim) obstacle(k *credential, model string, c *simCall) (why string, until time.Time) {
	now := time.Now()
	if k.named.disabled() {
		return "it is disabled", time.Time{}
	}
	for _, h := range []struct {
		what string
		b    bench
		in   func(*credential) bool
	}{
		{"its provider", k.provider.facts.look(), func(o *credential) bool { return o.provider.name == k.provider.name }},
		{"its account", k.account.facts.look(), func(o *credential) bool {
			return o.provider.name == k.provider.name && o.account.name == k.account.name
		}},
	} {
		switch {
		case h.b.active(now):
			return h.what + " is benched", h.b.until
		case h.b.strikes > 0 && c == nil && h.b.probe != nil, h.b.strikes > 0 && c != nil && s.underWay(c, h.b.until, h.in):
			return h.what + " is being probed", time.Time{}
		}
	}
	if n := k.facts.inFlight.Load(); k.maxInFlight > 0 && (n > k.maxInFlight || c == nil && n == k.maxInFlight) {
		return "it is busy", time.Time{}
	}
	k.facts.mu.Lock()
	defer k.facts.mu.Unlock()
	own := func(o *credential) bool { return o.name == k.name }
	f := k.facts
	switch r := f.rejected; {
	case r.active(now):
		return "it is rejected", r.until
	case r.strikes > 0 && c == nil && r.probe != nil, r.strikes > 0 && c != nil && s.underWay(c, r.until, own):
		return "it is being checked", time.Time{}
	}
	if f.cooldown.active(now) {
		return "it cools down", f.cooldown.until
	}
	if b := f.models[model]; b.active(now) && !c.visitBrought(b.until) {
		return "its model is benched", b.until
	}
	switch f.circuit.state(now) {
	case circuitOpen:
		if !c.visitBrought(f.circuit.until) {
			return "its circuit is open", f.circuit.until
		}
	case circuitHalfOpen:
		if c == nil && f.circuit.probe != nil || c != nil && s.underWay(c, f.circuit.until, own) {
			return "its circuit is being probed", time.Time{}
		}
	}
	return "", time.Time{}
}

// underWay reports whether another call to one of these keys began after a time and has not ended.
func (s *sim) underWay(c *simCall, since time.Time, in func(*credential) bool) bool {
	for _, o := range s.calls {
		if o != c && in(o.key) && o.ended.IsZero() && !o.began.Before(since) && !o.request.w.committed() {
			return true
		}
	}
	return false
}

// visitBrought reports whether an earlier attempt of the same visit brought about a bench that ends then.
func (c *simCall) visitBrought(until time.Time) bool {
	if c == nil {
		return false
	}
	for i := len(c.request.calls) - 1; i >= 0; i-- {
		earlier := c.request.calls[i]
		if earlier.key.name != c.key.name {
			return false
		}
		if simAmong(until.Sub(earlier.ended), earlier.benches()) {
			return true
		}
	}
	return false
}

func simAmong(d time.Duration, ds []time.Duration) bool {
	for _, x := range ds {
		if x == d {
			return true
		}
	}
	return false
}

// benches are how long something may be set aside for a call's failure.
func (c *simCall) benches() []time.Duration {
	pol := &c.request.pool.policy
	ds := []time.Duration{min(c.hint(), pol.maxCooldown)}
	if pol.circuitOn[c.class] {
		ds = append(ds, pol.cooldown)
	}
	base, limit := pol.haltBase, pol.haltMax
	switch c.class {
	case RateLimit:
		return append(ds, pol.limitedHalt)
	case AuthError:
		return append(ds, pol.recheck)
	case ModelUnavailable:
		return append(ds, pol.modelBench)
	case Overloaded:
		base, limit = pol.overload, pol.overloadCap
	case BillingError, QuotaExhausted, ProviderUnavailable:
	default:
		return ds
	}
	for n := range 10 {
		ds = append(ds, min(base<<n, limit))
	}
	return ds
}

// benchesExplained checks that there was a reason for everything that is set aside.
func (s *sim) benchesExplained(p *pool) {
	for _, k := range p.credentials {
		own := func(o *simCall) bool { return o.key.name == k.name }
		s.explained("provider of "+k.name, k.provider.facts.look(), func(o *simCall) bool { return o.key.provider.name == k.provider.name })
		s.explained("account of "+k.name, k.account.facts.look(), func(o *simCall) bool {
			return o.scope == ScopeAccount && o.key.provider.name == k.provider.name && o.key.account.name == k.account.name
		})
		k.facts.mu.Lock()
		s.explained(k.name+" cooldown", k.facts.cooldown, own)
		s.explained(k.name+" rejected", k.facts.rejected, own)
		s.explained(k.name+" limited", k.facts.limited, own)
		for model, b := range k.facts.models {
			s.explained(k.name+" "+model, b, func(o *simCall) bool { return own(o) && o.model == model && o.scope == ScopeModel })
		}
		if c := k.facts.circuit; !c.until.IsZero() {
			b := bench{reason: "any", until: c.until}
			s.explained(k.name+" circuit", b, func(o *simCall) bool { return own(o) && p.policy.circuitOn[o.class] })
		}
		k.facts.mu.Unlock()
	}
}

func (s *sim) explained(what string, b bench, by func(*simCall) bool) {
	if b.reason == "" {
		return
	}
	for _, c := range s.calls {
		if c.ended.IsZero() || !by(c) {
			continue
		}
		lasts := b.until.Sub(c.ended)
		if (b.reason == "any" || c.class.Parent() == b.reason.Parent()) && simAmong(lasts, c.benches()) {
			return
		}
		// A late hint extends what is there, whatever for.
		if c.hint() > 0 && lasts == min(c.hint(), c.request.pool.policy.maxCooldown) {
			return
		}
	}
	s.fault(nil, "%s is set aside for %s until %v without a reason", what, b.reason, b.until.Sub(s.begun))
}
