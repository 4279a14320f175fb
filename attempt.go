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
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// exchange is one upstream call under way: from its request to the last byte of its answer.
type exchange struct {
	visit    *visit
	clock    clock
	ctx      context.Context
	cancel   context.CancelCauseFunc
	dog      watchdog
	begun    time.Time
	asked    time.Time   // from when the first token is waited for
	reused   bool        // its connection had served before
	answered atomic.Bool // a byte of an answer has come; told by the connection's goroutine

	traced   *attemptSpan
	content  span           // when the next content must have come
	response *http.Response // nil if none came
	err      error          // why none came, or why it broke off

	answer // what was held of it
}

// send asks the visit's key once, as the n-th attempt of its request. It returns when the answer's headers are there or cannot come any more.
func (p *pool) send(in *inbound, v *visit, n int, deadline time.Time) *exchange {
	x := &exchange{visit: v, clock: p.clock, begun: p.clock.Now()}
	ctx, traced := beginSpan(in.Context(), in, v, n)
	x.traced = traced
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	x.dog.clock, x.dog.cancel = x.clock, x.cancel
	v.started = sequence.Load()
	v.facts.attempts.Add(1)

	headers := p.policy.headers
	if headers == 0 {
		headers = streamHeaders
		x.dog.longer = func() time.Duration { // asked when that is over, which is seldom
			if in.stream() {
				return 0
			}
			return plainHeaders
		}
	}
	what := limitHeaders
	if p.policy.firstToken < headers && in.route.Generates && in.stream() {
		what, headers = limitFirstToken, p.policy.firstToken
	}
	x.dog.until(what, headers, x.begun.Add(headers), deadline)
	defer x.dog.off()
	if in.final() {
		in.rest.clock = &x.dog
	}

	x.roundTrip(in)
	// A kept connection that the upstream has closed meanwhile says nothing about the key: once more, on a new one.
	if x.reused && !x.answered.Load() && isDead(x.err) && in.repeatable() && !in.final() && x.ctx.Err() == nil {
		v.provider.closeIdle() // it has most likely closed them all
		x.roundTrip(in)
	}
	x.err = x.cause(x.err)
	x.asked = x.begun
	if in.final() { // how long the caller took to send it is not the upstream's time
		x.asked = x.clock.Now()
	}
	return x
}

func (x *exchange) roundTrip(in *inbound) {
	req, err := x.visit.request(in)
	if err != nil {
		x.err = err
		return
	}
	x.traced.inject(x.ctx, req.Header)
	x.reused = false
	ctx := httptrace.WithClientTrace(x.ctx, &httptrace.ClientTrace{
		GotConn:              func(info httptrace.GotConnInfo) { x.reused = info.Reused },
		GotFirstResponseByte: func() { x.answered.Store(true) },
	})
	x.response, x.err = x.visit.provider.transport.RoundTrip(req.WithContext(ctx))
	if x.err != nil {
		req.Body.Close() // nobody reads it any more; the transport has closed it, too
	}
}

// isDead reports whether the error of an unanswered exchange is that of its connection: the other side closed it or said
// that it will, in one of the many words that net, crypto/tls and net/http have for it. Silence is not (the provider may
// be at work), nor is a reset of this stream alone, unless it says that the stream was not begun.
func isDead(err error) bool {
	var network net.Error
	switch {
	case err == nil, errors.As(err, &network) && network.Timeout():
		return false
	case strings.Contains(err.Error(), "stream error:"): // http2.StreamError, not exported by net/http
		return strings.Contains(err.Error(), "REFUSED_STREAM")
	}
	return true
}

// cause is the limit that ended the exchange, if one did, else err.
func (x *exchange) cause(err error) error {
	if err == nil {
		return nil
	}
	if limit, ok := context.Cause(x.ctx).(*limitError); ok {
		return limit
	}
	return err
}

// close ends the exchange. A connection whose answer was read to its end lives on.
func (x *exchange) close() {
	if x.visit == nil {
		return
	}
	x.dog.stop()
	if x.response != nil {
		x.response.Body.Close()
	}
	x.cancel(nil)
	x.traced.end()
	x.held.release()
	x.visit.settle()
	if x.visit.provider.pool.retired.Load() {
		x.visit.provider.closeIdle() // Cleanup did, but this connection was not idle then
	}
	x.visit = nil
}

// settle ends what counts as a call under way. The answer is there, but perhaps not yet with the caller.
func (v *visit) settle() {
	if v.calling {
		v.calling = false
		v.facts.inFlight.Add(-1)
	}
}

// request builds what goes upstream: the caller's request, with the provider's address and the key's credential.
func (v *visit) request(in *inbound) (*http.Request, error) {
	target, err := v.provider.target(in.pathFor(v.model), in.queryFor(v.model))
	if err != nil {
		return nil, fmt.Errorf("the request's path: %w", err)
	}
	req := &http.Request{
		Method: in.Method, URL: target, Host: target.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: upstreamHeader(in.Header),
	}
	in.offerUpgrade(req.Header)
	if in.Method != http.MethodGet && in.Method != http.MethodHead && req.Header.Get(fieldIdempotencyKey) == "" {
		req.Header[fieldIdempotencyKey] = []string{in.idempotencyKey(v.provider.hash)}
	}
	if ops := v.provider.config.HeaderUp; ops != nil {
		req.Header = req.Header.Clone() // the operations may write into the caller's values
		req = req.WithContext(in.Context())
		ops.ApplyToRequest(req)
	}
	for _, field := range v.provider.pool.ownFields {
		req.Header.Del(field)
	}
	v.authorize(req.Header, in)
	// No GetBody: without it the transport cannot send the body a second time behind our back.
	req.Body, req.ContentLength = in.bodyFor(v.model)
	if req.Trailer = in.trailerFor(); len(req.Trailer) > 0 {
		req.ContentLength = -1 // HTTP/1.1 has trailers only after chunks
	}
	return req, nil
}

// authorize sets the one header field that carries the credential.
func (v *visit) authorize(h http.Header, in *inbound) {
	field, prefix := in.route.Dialect.Credential()
	if auth := v.provider.config.Auth; auth != nil {
		switch auth.Scheme {
		case authBearer:
			field, prefix = "Authorization", "Bearer "
		case authHeader:
			h.Set(auth.Field, strings.ReplaceAll(auth.Value, "{key}", v.secret.value))
			return
		default: // the scheme is the field's name
			field, prefix = http.CanonicalHeaderKey(auth.Scheme), ""
		}
	}
	h[field] = []string{prefix + v.secret.value}
}

// The authentication schemes, as the config names them; the others are the names of their header fields.
const (
	authBearer      = "bearer"
	authXAPIKey     = "x-api-key"
	authXGoogAPIKey = "x-goog-api-key"
	authAPIKey      = "api-key"
	authHeader      = "header"
)

// notForUpstream are the caller's header fields that stay here: credentials, what identifies the caller, what is
// meant for this hop (RFC 9110 section 7.6.1), and what the transport sets itself.
var notForUpstream = fieldSet(
	"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Proxy-Authorization", "Cookie",
	"Openai-Organization", "Openai-Project", "X-Goog-User-Project", "X-Amz-Security-Token",
	"Forwarded", "X-Real-Ip", "Via", // and X-Forwarded-*
	"Accept-Encoding", "Content-Length", "Expect", "Host",
	"Sec-Websocket-Protocol", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions",
)

// hopByHop are the fields that no hop hands on, as in reverse_proxy.
var hopByHop = fieldSet(
	"Alt-Svc", "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
)

func fieldSet(names ...string) map[string]struct{} {
	set := make(map[string]struct{}, len(names))
	for _, n := range names {
		set[n] = struct{}{}
	}
	return set
}

// upstreamHeader copies what may travel. The values are shared with the caller's header.
func upstreamHeader(caller http.Header) http.Header {
	h := make(http.Header, len(caller)+2)
	for name, values := range caller {
		if travels(name) {
			h[name] = values
		}
	}
	dropConnectionFields(h, caller["Connection"])
	h["Accept-Encoding"] = identityEncoding // what cannot be read cannot be judged
	if _, given := h["User-Agent"]; !given {
		h["User-Agent"] = nil // else the transport sends its own
	}
	return h
}

// travels reports whether a field of the caller's may go upstream.
func travels(name string) bool {
	_, private := notForUpstream[name]
	_, hop := hopByHop[name]
	return !private && !hop && !strings.HasPrefix(name, "X-Forwarded-")
}

var identityEncoding = []string{"identity"}

// dropConnectionFields drops the fields that a Connection field names.
func dropConnectionFields(h http.Header, connection []string) {
	for _, line := range connection {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
}

// limitError says which of our own limits ended an attempt.
type limitError struct {
	limit limit
	after time.Duration
}

// Error names the limit.
func (e *limitError) Error() string {
	if e.limit == limitDeadline {
		return "the request's deadline"
	}
	return fmt.Sprintf("%s of %v", limitNames[e.limit], e.after)
}

// Timeout marks it as a timeout, as net.Error does.
func (e *limitError) Timeout() bool { return true }

type limit uint8

const (
	limitHeaders limit = iota
	limitFirstToken
	limitIdle
	limitContent
	limitDeadline
)

var limitNames = [...]string{"header limit", "first token limit", "idle limit", "content limit"}

// watchdog cancels an exchange when its time is over. It is set anew for each read, so setting it only notes when;
// the timer looks at that when it fires, and goes on if the time has moved.
type watchdog struct {
	clock  clock
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	timer    timer
	fires    time.Time // when the timer will
	due      time.Time // zero: off
	cause    limitError
	deadline time.Time
	longer   func() time.Duration // what the header limit is, if it is longer than that which is over
	paused   limitError           // the limit up to the headers, while the caller is waited for
}

// until sets it to a limit that ends at due, or to the deadline if that (not being zero) comes first.
func (d *watchdog) until(what limit, after time.Duration, due, deadline time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deadline, d.paused = deadline, limitError{}
	d.set(limitError{what, after}, due)
}

func (d *watchdog) set(cause limitError, due time.Time) {
	if !d.deadline.IsZero() && (due.IsZero() || d.deadline.Before(due)) {
		cause, due = limitError{limit: limitDeadline}, d.deadline
	}
	d.cause, d.due = cause, due
	switch {
	case due.IsZero():
	case d.timer == nil:
		d.timer, d.fires = d.clock.AfterFunc(due.Sub(d.clock.Now()), d.fire), due
	case due.Before(d.fires) || d.fires.IsZero():
		d.timer.Reset(due.Sub(d.clock.Now()))
		d.fires = due
	}
}

// pause stops the clock of the header limit while the caller is waited for.
func (d *watchdog) pause() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.due.IsZero() && (d.cause.limit == limitHeaders || d.cause.limit == limitFirstToken) {
		d.paused = d.cause
		d.set(limitError{}, time.Time{})
	}
}

// resume starts it anew, unless it has been set or stopped meanwhile.
func (d *watchdog) resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paused.after > 0 {
		d.set(d.paused, d.clock.Now().Add(d.paused.after))
		d.paused = limitError{}
	}
}

// off stops it, for the time that nothing is expected of the upstream.
func (d *watchdog) off() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.due, d.paused = time.Time{}, limitError{}
}

func (d *watchdog) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fires = time.Time{}
	switch wait := d.due.Sub(d.clock.Now()); {
	case d.due.IsZero():
	case wait > 0:
		d.timer.Reset(wait)
		d.fires = d.due
	case d.cause.limit == limitHeaders && d.longer != nil:
		after, longer := d.cause.after, d.longer()
		d.longer = nil
		d.set(limitError{limitHeaders, max(longer, after)}, d.due.Add(max(longer-after, 0)))
	default:
		cause := d.cause
		d.cancel(&cause)
	}
}

// stop ends it for good.
func (d *watchdog) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
}
