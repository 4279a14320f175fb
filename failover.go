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
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// failover serves one request.
type failover struct {
	pool       *pool
	in         *inbound
	w          http.ResponseWriter
	candidates candidates
	deadline   time.Time     // zero: none
	hurry      time.Duration // min_attempt for a caller who waits hardly longer than that; 0: as configured

	visit    *visit        // the one under way or last made
	verdict  Verdict       // of the last attempt
	retries  int           // charged switches and revisits made
	waited   time.Duration // between attempts
	failed   []failedAttempt
	kept     *passOn // the last upstream failure that may be passed on
	again    bool    // the caller itself tries it again
	alive    *keepalive
	cutShort bool // the deadline ended an attempt
	outcome  outcome
	upstream time.Duration // spent in attempts, up to their verdict

	trace trace
}

// statusCallerLeft is the status of a request whose caller has left, as nginx and reverse_proxy log it.
const statusCallerLeft = 499

// serve answers one request.
func (p *pool) serve(w http.ResponseWriter, r *http.Request) error {
	f := &failover{pool: p, w: w, trace: trace{pool: p.name}}
	replacer, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if replacer != nil {
		replacer.Map(f.trace.placeholder)
	}
	if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		extra.Add(zap.Object("llm_failover", &f.trace))
	}
	defer f.count()
	in, err := read(r, &p.bodies)
	if err != nil {
		return f.unreadable(r, err)
	}
	defer in.done()
	in.arrived = p.clock.Now() // how long a caller took to send it is no provider's concern
	if in.final() {
		client := http.NewResponseController(w)
		if r.ProtoMajor == 1 && client.EnableFullDuplex() == nil {
			// Else net/http would take what is left of the body for itself when the answer begins before its end. In
			// return nobody else sees to it that nothing which is left becomes the next request.
			w.Header().Set("Connection", "close")
		}
		defer in.rest.finish(client, r.ProtoMajor == 1)
	}
	f.in, f.trace.model = in, in.model
	f.candidates = candidates{pool: p, dialect: in.route.Dialect, model: in.model, sealed: in.sealed}
	if p.selection.policy == selectSticky {
		f.candidates.sticky = hashOf(replacer.ReplaceAll(p.selection.placeholder, ""))
	}
	f.deadline, f.hurry = p.policy.deadlineFor(in)
	f.again = isRetry(r.Header) || p.seen.again(r.Header.Get(fieldIdempotencyKey))
	if p.policy.keepalive > 0 && in.route.Generates && !in.wantsArray() && in.stream() {
		f.alive = &keepalive{w: w, interval: p.policy.keepalive, clock: p.clock}
		f.alive.start()
		defer f.alive.stop()
	}
	if limits := p.policy.gate; limits.inside > 0 {
		if !f.deadline.IsZero() {
			limits.wait = min(limits.wait, f.deadline.Sub(in.arrived)-f.progress(in.arrived).leastOf(&p.policy))
		}
		limits.wait = min(limits.wait, p.policy.window) // after it nothing may begin
		err := p.gate.enter(r.Context(), p.clock, limits)
		if waited := p.clock.Now().Sub(in.arrived); waited > 0 {
			f.waited += waited
			p.timed(waitQueue, waited)
		}
		if err != nil {
			return f.turnedAway(err)
		}
		defer p.gate.leave(p.policy.gate)
	}
	return f.run()
}

// turnedAway answers a request that the pool's limit kept out.
func (f *failover) turnedAway(err error) error {
	if f.in.left() {
		return f.callerLeft()
	}
	refused := refusal{status: http.StatusServiceUnavailable, code: codeQueueFull, message: err.Error(), local: true}
	return f.answer(&refused)
}

// run is the loop: the only place that decides, and the only one that waits.
func (f *failover) run() error {
	defer f.abandon()
	now := f.pool.clock.Now()
	act := admit(survey{free: anywhere}, now, f.progress(now), &f.pool.policy, 0)
	switch p := f.progress(now); { // it may have waited for its turn until there was no time left
	case act.do != stop:
	case p.remaining <= p.leastOf(&f.pool.policy):
		return f.giveUp(true)
	default:
		return f.turnedAway(errQueueFull)
	}
	for {
		if !f.pause(act) {
			return f.callerLeft()
		}
		if act.charged {
			f.retries++
		}
		if f.take(act) {
			done, next, err := f.attempt()
			if done {
				return err
			}
			act = next
		} else {
			act = f.without()
		}
		if act.do == stop {
			return f.giveUp(act.late)
		}
	}
}

// abandon hands back what the last visit holds, if a panic left it that.
func (f *failover) abandon() {
	if v := f.visit; v != nil {
		v.release()
		v.settle()
	}
}

// pause does an action's wait. It reports false if the caller left meanwhile. The deadline needs no look: no wait is
// begun that it would end.
func (f *failover) pause(act action) bool {
	if act.wait <= 0 {
		return !f.in.left()
	}
	began := f.pool.clock.Now()
	f.pool.clock.Wait(f.in.Context(), act.wait, nil)
	waited := f.pool.clock.Now().Sub(began)
	f.waited += waited
	f.pool.timed(f.waitFor(act), waited)
	return !f.in.left()
}

// take makes the visit that an action calls for the current one. It reports false if the key is not free any more.
func (f *failover) take(act action) bool {
	now := f.pool.clock.Now()
	if act.do == stay {
		f.visit.repeats++
		return f.visit.claim(f.visit, now).obstacle == free
	}
	var last *credential
	if f.visit != nil {
		last = f.visit.credential
	}
	f.candidates.fresh = act.charged && !act.draws
	v := f.candidates.next(last, now, act.to[:]...)
	if v == nil {
		return false
	}
	if last != nil {
		last.counters.failovers.WithLabelValues(string(f.verdict.Class)).Inc()
	}
	f.visit = v
	return true
}

// others are a request's options besides the key just asked.
func (f *failover) others(now time.Time) options {
	s := f.candidates.survey(f.visit.credential, now)
	return options{free: s.free, asked: !s.fresh}
}

// without says what to do when the key that was chosen is not free any more.
func (f *failover) without() action {
	now := f.pool.clock.Now()
	if f.visit == nil {
		return admit(f.candidates.survey(nil, now), now, f.progress(now), &f.pool.policy, f.pool.random())
	}
	act := f.next(f.others(now), now)
	f.visit.recordLeft(f.verdict, now)
	return act
}

func (f *failover) progress(now time.Time) progress {
	p := progress{again: f.again, attempts: f.trace.attempts, retries: f.retries, elapsed: now.Sub(f.in.arrived), remaining: noDeadline, hurry: f.hurry}
	if !f.deadline.IsZero() {
		p.remaining = f.deadline.Sub(now)
	}
	return p
}

func (f *failover) decide(o options, now time.Time) action {
	p := f.progress(now)
	p.repeats, p.probe, p.final = f.visit.repeats, f.visit.probed, f.visit.final
	return decide(f.verdict, p, o, &f.pool.policy, f.pool.random())
}

// next decides, and draws on the provider's retry budget where that is called for. An empty one leaves fewer options.
func (f *failover) next(o options, now time.Time) action {
	act := f.decide(o, now)
	if act.draws && !f.visit.provider.facts.budget.take(f.pool.policy.budget, now) {
		o.spent = true
		act = f.decide(o, now)
	}
	return act
}

// attempt asks the current visit's key once, judges what comes, and delivers it or says what to do next.
func (f *failover) attempt() (done bool, next action, err error) {
	v := f.visit
	f.trace.attempts++
	f.trace.provider, f.trace.key = v.provider.name, v.name
	if f.again && f.trace.attempts == 1 { // a repeat, if not one of ours
		v.provider.facts.budget.take(f.pool.policy.budget, f.pool.clock.Now())
	}
	x := f.pool.send(f.in, v, f.trace.attempts, f.deadline)
	defer x.close()
	if x.err == nil {
		x.hold(f.in, &f.pool.policy, f.deadline)
	}
	if f.in.left() {
		v.release()
		return true, action{}, f.callerLeft()
	}
	if err := f.in.fault(); err != nil && x.err != nil {
		v.release()
		return true, action{}, f.unreadable(f.in.Request, err)
	}
	now := f.pool.clock.Now()
	if x.response != nil {
		v.recordHeadroom(x.response.Header, now)
	}
	f.upstream += now.Sub(x.begun)
	f.verdict = f.classify(x, now)
	if !f.verdict.Failed() && !f.alive.yield(x.framing == eventStream) {
		x.found = FoundNoEnvelope
		f.verdict = Verdict{Class: ServerError, Scope: ScopeRequest, Rule: "no stream", Reason: "it answered without a stream, of which the caller already has the beginning"}
	}
	x.traced.judged(f.verdict, x.status())
	if !f.verdict.Failed() {
		v.counters.served.Inc()
		v.recordSuccess(now)
		v.release()
		return true, action{}, f.deliver(x)
	}
	v.counters.attempts.WithLabelValues(string(f.verdict.Class)).Inc()
	f.note(x)
	f.cutShort = f.cutShort || x.metDeadline()
	// A large body is gone once an upstream has had some of it.
	sent := f.in.final() && (x.response != nil || f.in.rest.begun.Load())
	v.final = sent || !f.in.repeatable() && x.outcomeUnknown(f.verdict)
	v.record(f.verdict, x.status(), f.othersCanServe, now)
	v.release()              // what it probed is known now; the request's next key may be of the same account or provider
	now = f.pool.clock.Now() // event handlers may have taken their time
	o := f.others(now)
	o.self = v.look(v.model, v, now).obstacle == free
	next = f.next(o, now)
	if next.do != stay {
		v.recordLeft(f.verdict, now)
	}
	f.logAttempt(x, next)
	return false, next, nil
}

// classify judges an exchange.
func (f *failover) classify(x *exchange, now time.Time) Verdict {
	v := classify(x.evidence(f.in, now))
	v.Hint = string(x.visit.secret.scrub([]byte(v.Hint)))
	switch {
	case !v.Failed() && x.response == nil: // cancelled by neither the caller nor a limit
		return Verdict{Class: Unknown, Scope: ScopeNone, Rule: "canceled", Reason: "the call was canceled"}
	case x.metDeadline(): // there was no time left; the key has kept within its limits
		v.Scope = ScopeRequest
	}
	return v
}

// note keeps what the caller may have to be told of a failed attempt.
func (f *failover) note(x *exchange) {
	f.trace.class = f.verdict.Class
	f.failed = append(f.failed, failedAttempt{
		Provider: x.visit.provider.name, Key: x.visit.name, Class: f.verdict.Class, Status: x.status(), Reason: f.verdict.Reason,
	})
	if f.verdict.Class != AuthError {
		if kept := x.keep(f.verdict, f.in.route.Dialect, f.pool.clock.Now()); kept != nil {
			f.kept = kept
		}
	}
}

// othersCanServe reports whether another provider is free for the request.
func (f *failover) othersCanServe() bool {
	return f.candidates.survey(f.visit.credential, f.pool.clock.Now()).free&otherProvider != 0
}

// unreadable answers a request whose body could not be read.
func (f *failover) unreadable(r *http.Request, err error) error {
	if r.Context().Err() != nil {
		return f.callerLeft()
	}
	refused := refusal{status: http.StatusBadRequest, code: codeInvalidRequest, message: "the request's body could not be read"}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		refused.status, refused.message = http.StatusRequestEntityTooLarge, "the request's body is larger than this server takes"
	case errors.Is(err, errNoRoom):
		refused = refusal{status: http.StatusServiceUnavailable, code: codeQueueFull, message: err.Error(), local: true}
	}
	if f.in != nil { // the rest of a large body
		return f.answer(&refused)
	}
	return refused.write(f.w, dialect.RouteOf(r.Method, r.URL.EscapedPath()).Dialect)
}

// callerLeft ends a request that nobody waits for: no error of anyone's.
func (f *failover) callerLeft() error {
	f.outcome = outcomeCanceled
	if f.visit != nil {
		f.visit.release()
	}
	if !f.alive.stop() {
		f.w.WriteHeader(statusCallerLeft)
	}
	return nil
}

// giveUp answers with what there is. Late: there was something left to try, but no time.
func (f *failover) giveUp(late bool) error {
	now := f.pool.clock.Now()
	if f.trace.attempts > 1 {
		f.logGaveUp()
	}
	if f.kept != nil {
		if f.alive.stop() {
			f.alive.fail(f.kept.event(f.in.route.Dialect))
		}
		return f.kept.write(f.w)
	}
	refused := f.refuse(late || f.cutShort, now)
	refused.attempts = f.failed
	return f.answer(&refused)
}

// waitFor names the kind of wait before an action.
func (f *failover) waitFor(act action) string {
	switch {
	case act.do == stay && !act.charged:
		return waitSameKey
	case f.visit == nil:
		return waitCooling
	default:
		return waitBackoff
	}
}

// count tells the metrics how the request ended, also where that was by a panic.
func (f *failover) count() {
	if f.outcome == "" {
		f.outcome = outcomeFailed
		if f.trace.attempts == 0 {
			f.outcome = outcomeRefused
		}
	}
	f.pool.counters.ended[f.outcome].Inc()
	if f.in != nil { // else it was never read
		f.pool.counters.whole.Observe(f.pool.clock.Now().Sub(f.in.arrived).Seconds())
	}
}

// answer sends a refusal in whatever form the caller can still be told.
func (f *failover) answer(refused *refusal) error {
	if f.alive.stop() {
		f.alive.fail(refused.event(f.in.route.Dialect))
	}
	return refused.write(f.w, f.in.route.Dialect)
}
