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
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// simOutcome is what a scripted upstream does with one call, and what that should be taken for.
type simOutcome struct {
	kind  string
	class Class // empty: a good answer, at least up to its first content
	scope Scope
	hint  time.Duration

	delay  time.Duration // before the headers, or before err
	err    error
	status int
	header http.Header
	parts  []simPart
	open   bool // the body does not end by itself

	stale   bool  // a kept connection that died
	unknown bool  // the upstream may have done the work
	late    Class // it fails after its first content, with this class
}

type simPart struct {
	delay time.Duration
	text  string
	err   error
}

// text is all of the body.
func (o *simOutcome) text() string {
	var b strings.Builder
	for _, p := range o.parts {
		b.WriteString(p.text)
	}
	return b.String()
}

// simAnswers are each dialect's good answers; %s is unique to the call.
var simAnswers = map[dialect.Dialect]string{
	dialect.Chat:      `{"id":"%s","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}`,
	dialect.Responses: `{"id":"%s","object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"hello"}]}]}`,
	dialect.Messages:  `{"id":"%s","type":"message","role":"assistant","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn"}`,
	dialect.Gemini:    `{"responseId":"%s","candidates":[{"content":{"parts":[{"text":"hello"}],"role":"model"},"finishReason":"STOP"}]}`,
}

// simEmpty are their answers with nothing in them.
var simEmpty = map[dialect.Dialect]string{
	dialect.Chat:      `{"id":"%s","object":"chat.completion","choices":[]}`,
	dialect.Responses: `{"id":"%s","object":"response","status":"completed","output":[]}`,
	dialect.Messages:  `{"id":"%s","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}`,
	dialect.Gemini:    `{"responseId":"%s","candidates":[]}`,
}

// simStream is a dialect's stream: what comes before the first content, content, and the ending.
type simStream struct{ before, content, ending string }

var simStreams = map[dialect.Dialect]simStream{
	dialect.Chat: {
		": hold on\n\ndata: {\"id\":\"%s\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"}}]}\n\n",
		"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
	},
	dialect.Responses: {
		"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"%s\",\"status\":\"in_progress\"}}\n\n",
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hello\"}\n\n",
		"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[]}}\n\n",
	},
	dialect.Messages: {
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"%s\",\"content\":[]}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n",
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n",
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
	},
	dialect.Gemini: {
		"data: {\"responseId\":\"%s\",\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\"}]}}]}\n\n",
		"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hello\"}]}}]}\n\n",
		"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\"}]},\"finishReason\":\"STOP\"}]}\n\n",
	},
}

// simErrorEvent is an error inside a stream.
func simErrorEvent(d dialect.Dialect, kind, message string) string {
	body := fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q}}`, kind, message)
	if d == dialect.Messages || d == dialect.Responses {
		return "event: error\ndata: " + body + "\n\n"
	}
	return "data: " + body + "\n\n"
}

func simError(status int, class Class, scope Scope, kind, message string) simOutcome {
	return simOutcome{
		kind: fmt.Sprintf("%d %s", status, kind), class: class, scope: scope, status: status,
		header: http.Header{"Content-Type": {"application/json"}},
		parts:  []simPart{{text: fmt.Sprintf(`{"error":{"message":%q,"type":%q}}`, message, kind)}},
	}
}

// simTimeout is an error as a transport's own limit gives it.
type simTimeout struct{}

func (simTimeout) Error() string { return "read: i/o timeout" }
func (simTimeout) Timeout() bool { return true }

// simOutcomes is what may befall a call that asks for a dialect, with a weight each. id is the call's own.
func simOutcomes(rng *rand.Rand, d dialect.Dialect, streams, generates bool, model, id string) simOutcome {
	ms := func(limit int) time.Duration {
		return time.Duration(rng.IntN(limit*1000)) * time.Microsecond
	}
	var o simOutcome
	switch n := rng.IntN(100); {
	case n < 22:
		o = simGood(rng, d, streams, generates, id)
	case n < 40:
		o = simLimited(rng, model)
	case n < 44:
		o = simError(401, AuthError, ScopeKey, "authentication_error", "Incorrect API key provided")
	case n < 48:
		o = simError(402, BillingError, ScopeAccount, "billing_error", "Insufficient balance")
	case n < 51:
		o = simError(429, QuotaExhausted, ScopeAccount, "rate_limit_error", "Rate limit reached")
		o.hint = time.Duration(301+rng.IntN(5000)) * time.Second
		o.header.Set("Retry-After", strconv.Itoa(int(o.hint/time.Second)))
	case n < 53:
		o = simError(400, BadRequest, ScopeRequest, "invalid_request_error", "'messages' is a required property")
	case n < 54:
		o = simError(413, ContextOverflow, ScopeRequest, "request_too_large", "")
	case n < 58:
		o = simError(404, ModelUnavailable, ScopeModel, "not_found_error", "The model does not exist")
		o.parts[0].text = fmt.Sprintf(`{"error":{"message":"The model %s does not exist","type":"invalid_request_error","code":"model_not_found"}}`, model)
	case n < 66:
		o = simError([]int{500, 502, 503}[rng.IntN(3)], ServerError, ScopeKey, "server_error", "The server had an error")
		o.unknown = o.status == 502
	case n < 69:
		o = simError([]int{504, 408}[rng.IntN(2)], Timeout, ScopeKey, "timeout", "")
		o.unknown = true
	case n < 74:
		o = simError(529, Overloaded, ScopeProvider, "overloaded_error", "Overloaded")
		if rng.IntN(2) == 0 {
			o.hint = time.Duration(1+rng.IntN(20)) * time.Second
			o.header.Set("Retry-After", strconv.Itoa(int(o.hint/time.Second)))
		}
	case n < 75:
		o = simError(302, ServerError, ScopeKey, "redirect", "elsewhere")
		o.header.Set("Location", "https://elsewhere.example/")
	case n < 78:
		o = simOutcome{kind: "reset", class: ServerError, scope: ScopeKey, err: syscall.ECONNRESET, unknown: true}
	case n < 80:
		o = simOutcome{kind: "dial", class: ProviderUnavailable, scope: ScopeProvider, err: simRefused}
	case n < 82:
		o = simOutcome{kind: "stale connection", class: ServerError, scope: ScopeKey, err: io.EOF, unknown: true, stale: true}
	case n < 84:
		o = simOutcome{kind: "transport timeout", class: Timeout, scope: ScopeKey, err: simTimeout{}, unknown: true}
	case n < 87:
		o = simOutcome{kind: "silent", class: Timeout, scope: ScopeKey, delay: 1000 * time.Hour, unknown: true}
		return o
	case streams:
		o = simBrokenStream(rng, d, id)
	default:
		o = simBrokenBody(rng, d, generates, id)
	}
	o.delay = ms(1500)
	if rng.IntN(10) == 0 {
		o.delay = ms(8000)
	}
	return o
}

// simLimited is a 429, with or without a hint.
func simLimited(rng *rand.Rand, model string) simOutcome {
	o := simError(429, RateLimit, ScopeKey, "rate_limit_error", "Rate limit reached")
	if model != "" && rng.IntN(5) == 0 {
		o = simError(429, RateLimit, ScopeModel, "rate_limit_error", "Rate limit reached for "+model)
	}
	switch rng.IntN(6) {
	case 0:
		o.hint = time.Duration(1+rng.IntN(8)) * time.Second
		o.header.Set("Retry-After", strconv.Itoa(int(o.hint/time.Second)))
	case 1:
		o.hint = time.Duration(1+rng.IntN(9000)) * time.Millisecond
		o.header.Set("Retry-After-Ms", strconv.Itoa(int(o.hint/time.Millisecond)))
	case 2:
		o.hint = time.Duration(10+rng.IntN(200)) * time.Second
		o.header.Set("Retry-After", strconv.Itoa(int(o.hint/time.Second)))
	}
	return o
}

// simGood is a good answer, in pieces.
func simGood(rng *rand.Rand, d dialect.Dialect, streams, generates bool, id string) simOutcome {
	o := simOutcome{kind: "good", status: 200, header: http.Header{"Content-Type": {"application/json"}}}
	switch {
	case !generates:
		o.parts = []simPart{{text: fmt.Sprintf(`{"id":"%s","data":[{"url":"x"}]}`, id)}}
	case streams:
		s := simStreams[d]
		o.header.Set("Content-Type", "text/event-stream")
		o.parts = append(simCut(rng, fmt.Sprintf(s.before, id)), simCut(rng, s.content+s.content+s.ending)...)
		o.open = d != dialect.Gemini && rng.IntN(3) == 0
	default:
		o.parts = simCut(rng, fmt.Sprintf(simAnswers[d], id))
		if rng.IntN(4) == 0 {
			o.header.Set("Content-Length", strconv.Itoa(len(o.text())))
		}
	}
	return o
}

// simBrokenBody is a whole answer that is none.
func simBrokenBody(rng *rand.Rand, d dialect.Dialect, generates bool, id string) simOutcome {
	o := simOutcome{status: 200, header: http.Header{"Content-Type": {"application/json"}}}
	good := fmt.Sprintf(simAnswers[d], id)
	switch n := rng.IntN(6); {
	case n == 0 && generates:
		o.kind, o.class, o.scope, o.unknown = "empty", EmptyResponse, ScopeNone, true
		o.parts = simCut(rng, fmt.Sprintf(simEmpty[d], id))
	case n == 1:
		o.kind, o.class, o.scope = "error in a 200", RateLimit, ScopeKey
		o.parts = simCut(rng, `{"type":"error","error":{"type":"rate_limit_error","message":"Rate limit reached"}}`)
	case n == 2 && generates:
		o.kind, o.class, o.scope, o.unknown = "cut short", ServerError, ScopeKey, true
		o.parts = simCut(rng, good[:len(good)/2])
	case n == 3 && generates:
		o.kind, o.class, o.scope, o.unknown = "page", ServerError, ScopeKey, true
		o.parts = simCut(rng, "<html><body>welcome</body></html>")
	case n == 4:
		o.kind, o.class, o.scope, o.unknown = "stalls", Timeout, ScopeKey, true
		o.parts, o.open = simCut(rng, good[:len(good)/2]), true
	default:
		o.kind, o.class, o.scope, o.unknown = "broken off", ServerError, ScopeKey, true
		o.parts = append(simCut(rng, good[:len(good)/2]), simPart{err: io.ErrUnexpectedEOF})
	}
	return o
}

// simBrokenStream is a stream that fails before or after its first content.
func simBrokenStream(rng *rand.Rand, d dialect.Dialect, id string) simOutcome {
	s := simStreams[d]
	o := simOutcome{status: 200, scope: ScopeKey, unknown: true, header: http.Header{"Content-Type": {"text/event-stream"}}}
	before, content := simCut(rng, fmt.Sprintf(s.before, id)), simCut(rng, s.content+s.content)
	switch rng.IntN(9) {
	case 0:
		o.kind, o.class, o.unknown = "error event at once", RateLimit, false
		o.parts = append(before, simPart{text: simErrorEvent(d, "rate_limit_error", "Rate limit reached")})
	case 1:
		o.kind, o.class, o.scope, o.unknown = "overload event at once", Overloaded, ScopeProvider, false
		o.parts = append(before, simPart{text: simErrorEvent(d, "overloaded_error", "Overloaded")})
	case 2:
		o.kind, o.class, o.scope = "stream without content", EmptyResponse, ScopeNone
		o.parts = append(before, simCut(rng, s.ending)...)
	case 3:
		o.kind, o.class = "stream stalls at once", Timeout
		o.parts, o.open = before, true
	case 4:
		o.kind, o.class = "stream breaks at once", ServerError
		o.parts = append(before, simPart{err: io.ErrUnexpectedEOF})
	case 5:
		o.kind, o.late = "error event later", RateLimit
		o.parts = append(append(before, content...), simPart{delay: time.Millisecond, text: simErrorEvent(d, "rate_limit_error", "Rate limit reached")})
	case 6:
		o.kind, o.late = "stream stalls later", Timeout
		o.parts, o.open = append(before, content...), true
	case 7:
		o.kind, o.late = "stream breaks later", ServerError
		o.parts = append(append(before, content...), simPart{delay: time.Millisecond, err: syscall.ECONNRESET})
	case 8:
		o.kind, o.late = "stream without ending", ServerError
		o.parts = append(before, content...)
	}
	return o
}

// simCut cuts a text into pieces that come one after the other.
func simCut(rng *rand.Rand, text string) (parts []simPart) {
	for len(text) > 0 {
		n := 1 + rng.IntN(len(text))
		parts = append(parts, simPart{delay: time.Duration(rng.IntN(300000)) * time.Microsecond, text: text[:n]})
		text = text[n:]
	}
	return parts
}

// simBody is a response body in virtual time.
type simBody struct {
	ctx    context.Context
	out    *simOutcome
	i      int
	rest   string
	whole  time.Time // when all had been read of one that stays open
	once   sync.Once
	closed func(whole bool)
}

func (b *simBody) Read(p []byte) (int, error) {
	for b.rest == "" {
		if b.i == len(b.out.parts) {
			if !b.out.open {
				return 0, io.EOF
			}
			if b.whole.IsZero() {
				b.whole = time.Now()
			}
			<-b.ctx.Done()
			return 0, context.Cause(b.ctx)
		}
		part := b.out.parts[b.i]
		if err := simSleep(b.ctx, part.delay); err != nil {
			return 0, err
		}
		b.i++
		if part.err != nil {
			return 0, part.err
		}
		b.rest = part.text
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *simBody) Close() error {
	b.once.Do(func() { b.closed(b.i == len(b.out.parts) && b.rest == "") })
	return nil
}

func simSleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RoundTrip implements http.RoundTripper: it notes the call and does what the script says.
func (s *sim) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		sent, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	c := s.called(r, sent)
	o := &c.outcome
	if o.stale {
		httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{Reused: true})
	}
	if err := simSleep(r.Context(), o.delay); err != nil {
		s.ended(c, err, false)
		return nil, err
	}
	if o.err != nil {
		s.ended(c, o.err, false)
		return nil, o.err
	}
	s.mu.Lock()
	c.answered = time.Now()
	s.mu.Unlock()
	response := &http.Response{
		StatusCode: o.status, Header: o.header.Clone(), Request: r, ContentLength: -1,
	}
	body := &simBody{ctx: r.Context(), out: o}
	body.closed = func(whole bool) { c.whole = body.whole; s.ended(c, context.Cause(r.Context()), whole) }
	response.Body = body
	if n := o.header.Get("Content-Length"); n != "" {
		response.ContentLength, _ = strconv.ParseInt(n, 10, 64)
	}
	return response, nil
}

var simRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
