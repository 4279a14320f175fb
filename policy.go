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
	"math"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// policy is a pool's configuration with its defaults filled in.
type policy struct {
	on, sameKeyOn, circuitOn map[Class]bool

	sameKey             []time.Duration
	backoff, backoffCap time.Duration
	jitter              float64 // as a share of the wait
	maxRetries          int
	maxAttempts         int
	maxWait             time.Duration
	window              time.Duration
	minAttempt          time.Duration
	budget              budgetRate

	threshold int
	cooldown  time.Duration
	lapses    bool          // half_open reset
	ramp      time.Duration // 0: none

	haltBase, haltMax     time.Duration
	limitedHalt           time.Duration
	overload, overloadCap time.Duration
	modelBench            time.Duration
	recheck               time.Duration
	maxCooldown           time.Duration

	headers       time.Duration // 0: the default, which depends on the request
	firstToken    time.Duration
	idle          time.Duration
	idleContent   time.Duration // 0: none
	keepalive     time.Duration // 0: off
	deadline      time.Duration // 0: none
	deadlineField string        // canonical; empty: none
	maxHeldBody   int64
	maxHeldBodies int64
	gate          gateLimits
}

// The default header limits: a stream begins early, a whole answer only when it is complete.
const (
	streamHeaders = 30 * time.Second
	plainHeaders  = 10 * time.Minute
)

func newPolicy(h *Handler) policy {
	var (
		r, c, a, t, l = orZero(h.Retry), orZero(h.Circuit), orZero(h.Halt), orZero(h.Timeouts), orZero(h.Limits)
		b             = orZero(r.Budget)
		keys          = 0
	)
	for _, p := range h.Providers {
		keys += len(p.Keys)
	}
	return policy{
		on:        classSet(r.On, RateLimit, ServerError, Timeout, ModelUnavailable, AuthError, BillingError, ProviderUnavailable),
		sameKeyOn: classSet(r.SameKeyOn, RateLimit, ModelUnavailable),
		circuitOn: classSet(c.On, RateLimit, ServerError, Timeout, ProviderUnavailable),

		sameKey:     waits(r.SameKey, time.Second, 2*time.Second, 4*time.Second),
		backoff:     or(r.Backoff, 500*time.Millisecond),
		backoffCap:  max(or(r.BackoffCap, 8*time.Second), time.Duration(r.Backoff)),
		jitter:      orValue(r.Jitter, 25) / 100,
		maxRetries:  orValue(r.MaxRetries, max(1, min(3, keys-1))),
		maxAttempts: min(max(24+8*keys, 32), 160),
		maxWait:     or(r.MaxWait, 5*time.Second),
		window:      or(r.Window, time.Minute),
		minAttempt:  or(r.MinAttempt, time.Second),
		budget:      budgetRate{orInt(b.Percent, 20) / 100, orInt(b.PerSecond, 10)},

		threshold: orInt(c.Threshold, 3),
		cooldown:  or(c.Cooldown, 30*time.Second),
		lapses:    c.HalfOpen == "reset",
		ramp:      time.Duration(c.Ramp),

		haltBase:    or(a.Base, time.Minute),
		haltMax:     max(or(a.Max, 5*time.Minute), time.Duration(a.Base)),
		limitedHalt: or(a.RateLimit, 30*time.Second),
		overload:    or(a.Overload, 5*time.Second),
		overloadCap: max(or(a.OverloadCap, time.Minute), time.Duration(a.Overload)),
		modelBench:  or(a.Model, time.Minute),
		recheck:     or(a.Recheck, 10*time.Minute),
		maxCooldown: or(a.MaxCooldown, time.Hour),

		headers:       time.Duration(t.Headers),
		firstToken:    or(t.FirstToken, 2*time.Minute),
		idle:          or(t.Idle, time.Minute),
		idleContent:   time.Duration(t.IdleContent),
		keepalive:     time.Duration(orZero(h.Stream).Keepalive),
		deadline:      time.Duration(t.Deadline),
		deadlineField: http.CanonicalHeaderKey(t.DeadlineHeader),
		maxHeldBody:   orInt(l.Body, min(32<<20, orInt(l.Held, 32<<20))),
		maxHeldBodies: max(orInt(l.Held, 256<<20), l.Body),
		gate:          gateLimits{l.MaxInFlight, l.Queue, time.Duration(l.QueueWait)},
	}
}

func orZero[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}

func orValue[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}

func orInt[T ~int | ~int64 | ~float64](n, fallback T) T {
	if n == 0 {
		return fallback
	}
	return n
}

func or(d caddy.Duration, fallback time.Duration) time.Duration {
	return orInt(time.Duration(d), fallback)
}

// sameKeyOff alone in same_key stands for no waits at all; an empty list is the default.
const sameKeyOff caddy.Duration = -1

func waits(given []caddy.Duration, fallback ...time.Duration) []time.Duration {
	if len(given) == 0 {
		return fallback
	}
	if given[0] == sameKeyOff {
		return nil
	}
	ws := make([]time.Duration, len(given))
	for i, d := range given {
		ws[i] = time.Duration(d)
	}
	return ws
}

func classSet(given []Class, fallback ...Class) map[Class]bool {
	if len(given) == 0 {
		given = fallback
	}
	set := make(map[Class]bool, len(given))
	for _, c := range given {
		set[c] = true
	}
	return set
}

// deadlineFor returns when a request's deadline is; zero: never. What its caller says of its own patience counts where it
// is shorter. A caller who waits hardly longer than min_attempt gets half of its time as that: it is asked for, but not
// again and again.
func (p *policy) deadlineFor(in *inbound) (deadline time.Time, hurry time.Duration) {
	limit := p.deadline
	if said := patience(in.Header, p.deadlineField); said > 0 && (limit == 0 || said < limit) {
		limit = said
		if said < 2*p.minAttempt {
			hurry = said / 2
		}
	}
	switch {
	case limit == 0:
		return time.Time{}, 0
	case hurry == 0 && limit <= p.minAttempt: // as configured: there is time for one attempt, at once
		hurry = limit / 2
	}
	return in.arrived.Add(limit), hurry
}

// retries reports whether another try may follow a failure of this class at all.
func (p *policy) retries(c Class) bool {
	return c.Parent() != BadRequest && (p.on[c] || p.on[c.Parent()])
}

// response is what a class of failure calls for.
type response struct {
	// again says when the same key is asked again.
	again again
	// unless: the same key is asked again only while no candidate here is free.
	unless where
	// next is where the next candidate may be, in order of preference.
	next [2]where
	// passed: moving on costs neither a wait nor one of max_retries, since the key refused at once.
	passed bool
}

type again uint8

const (
	never   again = iota
	waiting       // after the waits of same_key, or the upstream's hint
	once          // after the first of same_key
	charged       // after the backoff, as one of max_retries
)

// responses is the table of what each class does, as the README has it. A class that is not here is delivered.
var responses = map[Class]response{
	RateLimit:           {again: waiting, unless: otherAccount | otherProvider, next: [2]where{otherAccount | otherProvider, sameAccount}, passed: true},
	QuotaExhausted:      {next: [2]where{otherAccount | otherProvider}, passed: true},
	BillingError:        {next: [2]where{otherAccount | otherProvider}, passed: true},
	AuthError:           {next: [2]where{anywhere}, passed: true},
	Timeout:             {next: [2]where{otherProvider, anywhere}},
	ProviderUnavailable: {next: [2]where{otherProvider}},
	ServerError:         {again: charged, unless: anywhere, next: [2]where{anywhere}},
	Overloaded:          {again: once, unless: otherProvider, next: [2]where{otherProvider, anywhere}},
	EmptyResponse:       {next: [2]where{anywhere}},
	Unknown:             {next: [2]where{anywhere}}, // only where the config lists it
	ModelUnavailable:    {again: waiting, unless: anywhere, next: [2]where{anywhere}, passed: true},
}

// progress is how far a request has come.
type progress struct {
	attempts  int           // upstream calls made
	retries   int           // charged switches and revisits made
	repeats   int           // same-key waits done in this visit
	probe     bool          // the visit is a probe
	final     bool          // it cannot or may not be sent again
	again     bool          // the caller itself tries it again, and does the waiting
	elapsed   time.Duration // since the request arrived
	remaining time.Duration // until the deadline
	hurry     time.Duration // min_attempt for a caller in a hurry; 0: as configured
}

// leastOf is the least that an attempt must have until the deadline.
func (p progress) leastOf(pol *policy) time.Duration {
	if p.hurry > 0 {
		return p.hurry
	}
	return pol.minAttempt
}

// noDeadline is the remaining time of a request that has none.
const noDeadline = time.Duration(math.MaxInt64)

// options is which candidates are free.
type options struct {
	self  bool  // the key just asked may be asked again
	free  where // where others are
	asked bool  // those at other providers have all been asked by this request: they are no first call
	spent bool  // the provider's retry budget is: no charged repeats there
}

// action is what to do after a failure.
type action struct {
	do      verb
	wait    time.Duration
	to      [2]where // with move
	charged bool     // it is one of max_retries
	draws   bool     // it takes one from the provider's retry budget
	late    bool     // with stop: there was something left to try, but no time
}

type verb uint8

const (
	stop verb = iota // give up, with what there is
	stay             // ask the same key again
	move             // ask another candidate
)

// decide says what to do after a failure. Jitter is a random number from 0 to 1.
func decide(v Verdict, p progress, o options, pol *policy, jitter float64) action {
	r, known := responses[v.Class]
	if !known || p.final || p.attempts >= pol.maxAttempts || !pol.retries(v.Class) {
		return action{}
	}
	late := false
	for _, a := range [...]action{stayAction(v, p, o, pol, r, jitter), moveAction(v, p, o, pol, r, jitter)} {
		switch {
		case a.do == stop:
		case p.elapsed+a.wait > pol.window:
		case p.remaining-a.wait <= p.leastOf(pol):
			late = true
		default:
			return a
		}
	}
	return action{late: late}
}

// admit says what a request does that no free candidate was found for: it waits for one that merely cools and is back
// within max_wait (or the queue's wait) of the request's arrival, or it is refused. Jitter is a random number from 0
// to 1: those who wait for one key must not come back all at once.
func admit(s survey, now time.Time, p progress, pol *policy, jitter float64) action {
	wait := s.cooling.Sub(now)
	switch {
	case s.free != 0: // it was taken, or came free, between two looks
		wait = 0
	case s.cooling.IsZero() || p.elapsed+wait > pol.limitedWait():
		return action{}
	default:
		wait = pol.jittered(wait, min(pol.limitedWait(), pol.window)-p.elapsed, jitter)
	}
	if p.elapsed+wait > pol.window || p.remaining-wait <= p.leastOf(pol) {
		return action{}
	}
	return action{do: move, wait: wait, to: [2]where{anywhere}}
}

// stayAction asks the same key again, if the class calls for it and nothing better is free.
func stayAction(v Verdict, p progress, o options, pol *policy, r response, jitter float64) action {
	how := r.again
	switch {
	case pol.sameKeyOn[v.Class]:
		how = waiting
	case how == waiting:
		how = never
	}
	unless := r.unless
	if unless == 0 {
		unless = anywhere
	}
	if !o.self || o.spent || p.probe || o.free&unless != 0 || v.Scope == ScopeRequest {
		return action{}
	}
	switch how {
	case waiting, once:
		if p.again || p.repeats >= len(pol.sameKey) || how == once && p.repeats > 0 {
			return action{}
		}
		wait := pol.sameKey[p.repeats]
		if v.Wait > 0 {
			wait = v.Wait
		}
		limit := pol.maxWait
		if v.Class == RateLimit {
			limit = pol.limitedWait()
		}
		if wait > limit {
			return action{}
		}
		return action{do: stay, wait: pol.jittered(wait, limit, jitter), draws: true}
	case charged:
		if p.retries >= pol.maxRetries {
			return action{}
		}
		return action{do: stay, wait: pol.backoffWait(p.retries, jitter), charged: true, draws: true}
	}
	return action{}
}

// moveAction goes to another candidate. A key that refused at once is passed over; one that had its waits first has
// cost as much as a fault, unless what ends them is that a better candidate came free.
func moveAction(v Verdict, p progress, o options, pol *policy, r response, jitter float64) action {
	if o.free&(r.next[0]|r.next[1]) == 0 {
		return action{}
	}
	if r.passed && (p.repeats == 0 || o.free&r.unless != 0) {
		return action{do: move, to: r.next}
	}
	if o.spent { // the first call to another provider is free
		elsewhere := otherProvider
		if o.asked {
			elsewhere = 0
		}
		r.next[0], r.next[1] = r.next[0]&elsewhere, r.next[1]&elsewhere
	}
	if p.retries >= pol.maxRetries || o.free&(r.next[0]|r.next[1]) == 0 {
		return action{}
	}
	a := action{do: move, to: r.next, wait: pol.backoffWait(p.retries, jitter), charged: true}
	reach := o.free & r.next[0]
	if reach == 0 {
		reach = o.free & r.next[1]
	}
	a.draws = reach&^otherProvider != 0 || o.asked
	return a
}

// limitedWait is the longest wait for a key that is limited: a queue is for waiting.
func (p *policy) limitedWait() time.Duration { return max(p.maxWait, p.gate.wait) }

// backoffWait is the wait before the charged switch that follows n earlier ones.
func (p *policy) backoffWait(n int, jitter float64) time.Duration {
	return p.jittered(doubled(p.backoff, n, min(p.backoffCap, p.maxWait)), p.maxWait, jitter)
}

// jittered adds to a wait, never beyond a limit, and takes nothing off.
func (p *policy) jittered(wait, limit time.Duration, jitter float64) time.Duration {
	extra := time.Duration(float64(wait) * p.jitter * jitter)
	return wait + max(0, min(extra, limit-wait))
}
