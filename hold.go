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
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// What is held of an answer until it can be judged.
const (
	maxHeld      = 512 << 10 // of an answer or of a stream's beginning; with more it goes to the caller unjudged
	maxErrorBody = 256 << 10 // of a failure's body
	maxJudged    = 64 << 10  // of that, what is searched for a reason

	// errorBodyTime is how long the body of a failure may take. Its status has already said that it is one.
	errorBodyTime = 2 * time.Second

	// readSize is the least that one read of a stream may bring. Events are small; larger ones make the buffer grow.
	readSize = 4 << 10
)

// answer is what was held of an exchange's answer.
type answer struct {
	held    *buffer  // what was read and not yet handed on
	whole   bool     // held is all of it
	stream  bool     // it is a stream of events
	framing *framing // of that
	decoded bool     // held is not in the encoding that the header tells
	found   Finding
	failing []byte // with FoundError: the error object; it aliases held
}

// hold reads the answer until it can be judged. It may fail over until then, and not after: what it read last is the
// first content.
func (x *exchange) hold(in *inbound, p *policy, deadline time.Time) {
	defer x.dog.off()
	h := x.response.Header
	switch status := x.response.StatusCode; {
	case in.upgrade != nil, status == http.StatusSwitchingProtocols:
		x.holdHandshake(in, p, deadline)
		return
	case in.Method == http.MethodHead, status == http.StatusNoContent, status == http.StatusNotModified:
		x.held, x.whole = newBuffer(0), true
		if in.route.Generates && status == http.StatusNoContent {
			x.found = FoundEmpty
		}
		return
	case status < 200 || status > 299:
		x.holdFailure(p, deadline)
		return
	}
	x.dog.until(limitIdle, p.idle, x.clock.Now().Add(p.idle), deadline) // a decoder reads at once
	readable, err := x.decode()
	switch {
	case err != nil:
		x.held, x.found, x.err = newBuffer(0), FoundCut, x.cause(err)
		return
	case !readable:
		x.held = newBuffer(0)
		return
	}
	switch {
	case strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "text/event-stream"):
		x.framing = eventStream
	case in.route.Stream && isJSONType(h) && x.isArray(): // Gemini streams so, if not asked for alt=sse
		x.framing = elements
	default:
		x.holdPlain(in, p, deadline)
		return
	}
	x.stream = true
	x.holdStream(in, p, deadline)
}

// decode makes the answer readable. We ask for no coding; some upstreams use one all the same. It reports false for
// what we cannot read, and so cannot judge.
func (x *exchange) decode() (readable bool, err error) {
	coding := codingOf(x.response.Header)
	if coding == "" {
		return true, nil
	}
	body := x.response.Body
	d, err := newDecoder(coding, body)
	switch {
	case errors.Is(err, errCoding):
		return false, nil
	case errors.Is(err, errNotCoded): // some upstreams forget to take the field off their errors
		x.response.Header.Del("Content-Encoding")
		x.response.Body = readCloser{d, body}
		return true, nil
	case err != nil:
		return false, err
	}
	x.response.Body = readCloser{d, body}
	x.response.ContentLength = -1
	x.decoded = true
	return true, nil
}

// readCloser reads through something and closes what is beneath.
type readCloser struct {
	io.Reader
	io.Closer
}

// holdFailure reads the body of a failed answer: bounded in size and time, and to its end where that is near, so that
// the connection lives on.
func (x *exchange) holdFailure(p *policy, deadline time.Time) {
	within := min(p.idle, errorBodyTime)
	x.dog.until(limitIdle, within, x.clock.Now().Add(within), deadline)
	_, _ = x.decode() // if it cannot be read, the status must do
	x.held = newBuffer(min(max(x.response.ContentLength, 0)+1, maxErrorBody))
	for len(x.held.data) < maxErrorBody {
		n, err := x.response.Body.Read(x.held.room(512))
		x.held.data = x.held.data[:len(x.held.data)+n]
		if err != nil {
			x.whole = err == io.EOF
			return
		}
	}
}

// holdPlain reads an answer that is no stream: all of it, if it is not too large.
func (x *exchange) holdPlain(in *inbound, p *policy, deadline time.Time) {
	size := x.response.ContentLength
	x.held = newBuffer(min(max(size, 0)+1, maxHeld))
	judged := in.route.Generates || in.route.JSON || isJSONType(x.response.Header)
	for len(x.held.data) < maxHeld {
		n, err := x.read(x.held.room(512), p, deadline)
		x.held.data = x.held.data[:len(x.held.data)+n]
		if err == io.EOF {
			x.whole = true
			break
		}
		if err != nil {
			x.found, x.err = FoundCut, x.cause(err)
			return
		}
		if !judged && n > 0 {
			return // audio, files: the first byte is the first content
		}
	}
	if !x.whole || !judged {
		return
	}
	switch in.route.Body(x.held.data) {
	case dialect.BodyEmpty:
		x.found = FoundEmpty
	case dialect.BodyFailed:
		x.found, x.failing = FoundError, x.held.data
	case dialect.BodyForeign:
		x.found = FoundNoEnvelope
	case dialect.BodyCut:
		x.found, x.err = FoundCut, io.ErrUnexpectedEOF
	}
}

func isJSONType(h http.Header) bool {
	ct := h.Get("Content-Type")
	return ct == "" || strings.Contains(ct, "json")
}

// isArray looks whether the answer begins as an array, which takes nothing of it away.
func (x *exchange) isArray() bool {
	r := bufio.NewReaderSize(x.response.Body, readSize)
	x.response.Body = readCloser{r, x.response.Body}
	for n := 1; ; n++ {
		b, err := r.Peek(n)
		if err != nil {
			return false
		}
		if c := b[n-1]; c > ' ' {
			return c == '['
		}
	}
}

// holdStream reads a stream up to its first content.
func (x *exchange) holdStream(in *inbound, p *policy, deadline time.Time) {
	x.held = newBuffer(readSize)
	x.content = span{limitFirstToken, p.firstToken, x.asked.Add(p.firstToken)}
	judged := 0       // how much of held has been looked at
	began := false    // an event of the answer has come, if an empty one
	var prose []byte  // what came in place of one: no JSON
	finished := false // a finish reason has come
	look := func(raw []byte) (stop bool) {
		judged += len(raw)
		data, signal := x.framing.read(in.route.Dialect, raw)
		switch {
		case len(data) == 0:
		case data[0] != '{' && data[0] != '[' && signal == 0:
			if prose == nil {
				prose = bytes.Clone(data[:min(len(data), maxJudged)])
			}
		default:
			began = true
		}
		finished = finished || signal&dialect.Finished != 0
		switch {
		case signal&dialect.Failed != 0:
			x.found, x.failing = FoundError, data
		case signal&dialect.Content != 0:
		case signal&dialect.Terminal != 0:
			x.found = FoundEmpty
		default:
			return false
		}
		return true
	}
	for len(x.held.data) < maxHeld {
		n, err := x.read(x.held.room(readSize), p, deadline)
		x.held.data = x.held.data[:len(x.held.data)+n]
		if !in.route.Generates && n > 0 {
			return
		}
		if x.framing.mayEnd(x.held.data[len(x.held.data)-n:]) {
			for size := x.framing.next(x.held.data[judged:]); size > 0; size = x.framing.next(x.held.data[judged:]) {
				if look(x.held.data[judged : judged+size]) {
					return
				}
			}
		}
		switch {
		case err == nil:
			continue
		case !errors.Is(err, io.EOF):
			x.found, x.err = FoundCut, x.cause(err)
			return
		}
		x.whole = true
		switch {
		case !in.route.Generates:
		case x.framing.tail && judged < len(x.held.data) && look(x.held.data[judged:]):
		case !began && prose != nil:
			x.found, x.failing = FoundNoEnvelope, prose
		case began && !finished, !x.framing.tail:
			x.found, x.err = FoundCut, io.ErrUnexpectedEOF
		default:
			x.found = FoundEmpty
		}
		return
	}
}

// span is a time by which something must have come.
type span struct {
	limit limit
	after time.Duration
	due   time.Time // zero: nothing need come
}

// read reads once, under the idle limit and under that for the next content, if there is one.
func (x *exchange) read(b []byte, p *policy, deadline time.Time) (int, error) {
	now := x.clock.Now()
	next := span{limitIdle, p.idle, now.Add(p.idle)}
	if !x.content.due.IsZero() && x.content.due.Before(next.due) {
		next = x.content
	}
	x.dog.until(next.limit, next.after, next.due, deadline)
	return x.response.Body.Read(b)
}

// metDeadline reports whether the request's deadline ended the exchange.
func (x *exchange) metDeadline() bool {
	var l *limitError
	return errors.As(x.err, &l) && l.limit == limitDeadline
}

// status is the answer's status, 0 if none came.
func (x *exchange) status() int {
	if x.response == nil {
		return 0
	}
	return x.response.StatusCode
}

// evidence is what the exchange brought, for the classifier.
func (x *exchange) evidence(in *inbound, now time.Time) Evidence {
	e := Evidence{
		Err: x.err, Found: x.found, Dialect: in.route.Dialect, Model: x.visit.model,
		Vendor: x.visit.provider.vendor, Rules: x.visit.provider.rules, Now: now,
	}
	var limit *limitError
	if x.response == nil || errors.As(x.err, &limit) {
		return e
	}
	e.Status, e.Header, e.Body = x.response.StatusCode, x.response.Header, x.failing
	if e.Body == nil {
		e.Body = x.held.data[:min(len(x.held.data), maxJudged)]
	}
	return e
}

// outcomeUnknown reports whether the upstream may have carried the request out although it failed.
func (x *exchange) outcomeUnknown(v Verdict) bool {
	switch {
	case v.Class == ProviderUnavailable: // it was never reached
		return false
	case x.response == nil || v.Class == Timeout:
		return true
	case x.found != FoundNothing:
		return x.found != FoundError
	}
	switch x.response.StatusCode {
	case http.StatusBadGateway, 520: // an edge that lost the origin's answer
		return true
	}
	return false
}
