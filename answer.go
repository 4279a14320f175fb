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
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
	"github.com/llmfailover/caddy-llm-failover/internal/hint"
)

// refusal is a failure that we word ourselves.
type refusal struct {
	status  int
	code    string
	message string
	// retryAfter: when a new request may fare better. Only where nothing was asked upstream.
	retryAfter time.Duration
	local      bool
	attempts   []failedAttempt
}

// The codes of our own refusals.
const (
	codeAllHalted       = "all_halted"
	codeAllOpen         = "all_open"
	codeAllCooling      = "all_cooling"
	codeCredentials     = "upstream_credentials"
	codeUnreachable     = "upstream_unreachable"
	codeTimeout         = "timeout"
	codeDeadline        = "deadline"
	codeExhausted       = "attempts_exhausted"
	codeQueueFull       = "queue_full"
	codeModelNotServed  = "model_not_served"
	codeUpstreamError   = "upstream_error"
	codeInvalidRequest  = "invalid_request"
	codeFailedMidStream = "stream_failed"
)

// failedAttempt is what callers are told of an attempt.
type failedAttempt struct {
	Provider string `json:"provider"`
	Key      string `json:"key"`
	Class    Class  `json:"class"`
	Status   int    `json:"status,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// What each dialect calls a failure of a status.
var (
	chatTypes = map[int]string{
		400: "invalid_request_error", 404: "invalid_request_error", 429: "rate_limit_error", 504: "timeout_error",
	}
	messagesTypes = map[int]string{
		400: "invalid_request_error", 404: "not_found_error", 429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
	}
	geminiStatuses = map[int]string{
		400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 502: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
	}
)

func typeOf(types map[int]string, status int, fallback string) string {
	if t, ok := types[status]; ok {
		return t
	}
	return fallback
}

type (
	chatError struct {
		Error struct {
			Message  string          `json:"message"`
			Type     string          `json:"type"`
			Code     string          `json:"code"`
			Param    *string         `json:"param"`
			Attempts []failedAttempt `json:"attempts,omitempty"`
		} `json:"error"`
	}
	messagesError struct {
		Type  string `json:"type"`
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
		Attempts []failedAttempt `json:"attempts,omitempty"`
	}
	geminiError struct {
		Error struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Status  string `json:"status"`
		} `json:"error"`
		Attempts []failedAttempt `json:"attempts,omitempty"`
	}
	responsesEvent struct {
		Type           string  `json:"type"`
		Code           string  `json:"code"`
		Message        string  `json:"message"`
		Param          *string `json:"param"`
		SequenceNumber int     `json:"sequence_number"`
		Error          any     `json:"error"`
	}
)

// obstacles is how refusals and their codes tell of what stands in the way, the gravest first.
var obstacles = []struct {
	is      obstacle
	status  int
	code    string
	message string
}{
	{halted, 503, codeAllHalted, "its account or provider is halted"},
	{open, 503, codeAllOpen, "its circuit is open"},
	{busy, 503, codeQueueFull, "it has as many calls under way as it may"},
	{cooling, 429, codeAllCooling, "it was limited and cools down"},
	{rejected, 502, codeCredentials, "its credential was refused upstream"},
	{modelGone, 404, codeModelNotServed, "it does not have the model"},
	{disabled, 503, codeAllHalted, "an operator has disabled it"},
}

// refuse words why the request could not be served. Late: time ran out.
func (f *failover) refuse(late bool, now time.Time) refusal {
	onlyAuth, onlyUnreachable := true, true
	var last Class // of the last failure that was no credential's
	for _, a := range f.failed {
		if a.Class == AuthError {
			continue
		}
		onlyAuth, last = false, a.Class
		onlyUnreachable = onlyUnreachable && a.Class == ProviderUnavailable
	}
	sentOnce := f.in.final() && f.visit != nil && f.visit.final
	r := refusal{status: http.StatusBadGateway, code: codeExhausted, message: "no attempt succeeded", local: len(f.failed) == 0}
	switch {
	case late:
		r.status, r.code, r.message = http.StatusGatewayTimeout, codeDeadline, "the request's deadline has passed"
	case onlyAuth && !sentOnce:
		return f.refuseLocally(now)
	case onlyAuth:
		r.message = "the upstream refused its credential"
	case onlyUnreachable:
		r.code, r.message = codeUnreachable, "no upstream could be reached"
	case last == Timeout:
		r.status, r.code, r.message = http.StatusGatewayTimeout, codeTimeout, "the upstream did not answer in time"
	}
	if sentOnce && !late {
		r.code = codeExhausted
		r.message += "; a body over the pool's limit for bodies (`limits body`) is not held, so it can be sent only once"
	}
	return r
}

// reloadRetryAfter is when a caller may ask again where only an operator can change anything: all keys are disabled, or
// none is for the model.
const reloadRetryAfter = 10 * time.Second

// refuseLocally words what keeps every candidate from being asked. Keys that refused in this very request count as
// rejected.
func (f *failover) refuseLocally(now time.Time) refusal {
	s := f.candidates.survey(nil, now)
	if s.serving == 0 {
		message := fmt.Sprintf("no key of pool %s serves this API", f.pool.name)
		if f.in.model != "" {
			message = fmt.Sprintf("no key of pool %s serves the model %.*q", f.pool.name, maxModelName, f.in.model)
		}
		if f.in.model != "" && f.in.sealed {
			message += " under this name, and in a compressed body it cannot be renamed"
		}
		return refusal{status: http.StatusNotFound, code: codeModelNotServed, message: message, local: true, retryAfter: reloadRetryAfter}
	}
	s.count[rejected] += len(f.failed)
	r := refusal{status: http.StatusServiceUnavailable, code: codeAllHalted, message: "no key may be asked now", local: len(f.failed) == 0}
	worded := false
	for _, o := range obstacles {
		if s.count[o.is] == 0 {
			continue
		}
		if !worded {
			r.status, r.code, worded = o.status, o.code, true
		}
		r.message += fmt.Sprintf("; %d of %d: %s", s.count[o.is], s.serving, o.message)
	}
	switch {
	case !s.soonest.IsZero():
		r.retryAfter = s.soonest.Sub(now)
	case s.count[disabled] == s.serving: // only an operator can tell
		r.retryAfter = reloadRetryAfter
	}
	return r
}

// body words a refusal in a dialect.
func (f *refusal) body(d dialect.Dialect) []byte {
	var v any
	switch d {
	case dialect.Messages:
		e := messagesError{Type: "error", Attempts: f.attempts}
		e.Error.Type, e.Error.Message = typeOf(messagesTypes, f.status, "api_error"), f.message
		v = e
	case dialect.Gemini:
		e := geminiError{Attempts: f.attempts}
		e.Error.Code, e.Error.Message, e.Error.Status = f.status, f.message, typeOf(geminiStatuses, f.status, "INTERNAL")
		v = e
	default:
		var e chatError
		e.Error.Message, e.Error.Type, e.Error.Code = f.message, typeOf(chatTypes, f.status, "api_error"), f.code
		e.Error.Attempts = f.attempts
		v = e
	}
	b, err := json.Marshal(v)
	if err != nil { // these types always marshal
		return []byte(`{"error":{"message":"internal error"}}`)
	}
	return b
}

// event words it as the event that ends a stream of a dialect.
func (f *refusal) event(d dialect.Dialect) []byte {
	switch d {
	case dialect.Messages:
		return append(append([]byte("event: error\ndata: "), f.body(d)...), "\n\n"...)
	case dialect.Responses:
		b, err := json.Marshal(responsesEvent{Type: "error", Code: f.code, Message: f.message, Error: map[string]string{"code": f.code, "message": f.message}})
		if err != nil {
			return nil
		}
		return append(append([]byte("event: error\ndata: "), b...), "\n\n"...)
	default:
		return append(append([]byte("data: "), f.body(d)...), "\n\n"...)
	}
}

// element words it as the last element of an array that stays open.
func (f *refusal) element(d dialect.Dialect) []byte {
	return append([]byte(",\r\n"), f.body(d)...)
}

// write sends a refusal to the caller.
func (f *refusal) write(w http.ResponseWriter, d dialect.Dialect) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if f.local {
		wait := max(f.retryAfter, time.Second)
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		h.Set("Retry-After-Ms", strconv.FormatInt(wait.Milliseconds(), 10))
	} else {
		h.Set("X-Should-Retry", "false")
	}
	body := f.body(d)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.status)
	_, _ = w.Write(body) // if the caller has left, there is nobody to tell
	return nil
}

// copyHeader copies an answer's header fields for the caller, without what is meant for this hop and without a secret.
func (x *exchange) copyHeader(to http.Header) {
	from := x.response.Header
	x.visit.secret.scrubHeader(from)
	for name, values := range from {
		if _, stays := hopByHop[name]; !stays {
			to[name] = values
		}
	}
	dropConnectionFields(to, from["Connection"])
	if _, given := from["Content-Type"]; !given {
		to["Content-Type"] = nil // else net/http guesses one
	}
	to.Del("Location") // of no use to the caller, who does not know this upstream
	if x.decoded {
		to.Del("Content-Encoding")
		to.Del("Content-Length")
	}
}

// passOn is an upstream's failure, kept to be passed on if nothing better comes.
type passOn struct {
	status int
	header http.Header
	body   []byte
}

// statusOf is the status for a failure that an upstream reported under a success status.
var statusOf = map[Class]int{
	RateLimit: 429, QuotaExhausted: 429, BillingError: 402, ModelUnavailable: 404, Timeout: 504, Overloaded: 503,
	BadRequest: 400, ContextOverflow: 400, ContentPolicy: 400,
}

// keep prepares an answer to be passed on as a failure, or returns nil where there is nothing that may be: no answer
// at all, a success that was none, a redirect.
func (x *exchange) keep(v Verdict, d dialect.Dialect, now time.Time) *passOn {
	if x.response == nil || x.response.StatusCode/100 == 3 {
		return nil
	}
	kept := &passOn{status: x.response.StatusCode, header: make(http.Header, len(x.response.Header))}
	switch {
	case x.found == FoundError:
		kept.status = http.StatusBadGateway
		if s, ok := statusOf[v.Class]; ok {
			kept.status = s
		}
		kept.body = inDialect(x.failing, d, kept.status)
	case x.found != FoundNothing:
		return nil
	case !x.whole:
		kept.body = (&refusal{status: kept.status, code: codeUpstreamError, message: "the upstream failed, with an error that is too long or too slow to be passed on"}).body(d)
	default:
		kept.body = append([]byte(nil), x.held.data...)
		if v.Class == ContextOverflow && kept.status > 499 { // the request's fault is never told as the server's
			kept.status = http.StatusBadRequest
		}
	}
	kept.body = x.visit.secret.scrub(kept.body)
	x.copyHeader(kept.header)
	cleanRetryAfter(kept.header, now)
	if x.found == FoundError || !x.whole {
		kept.header.Set("Content-Type", "application/json")
		kept.header.Del("Content-Encoding")
	}
	return kept
}

// inDialect returns an error object as it is if clients of the dialect can read it, else its message in their shape.
func inDialect(body []byte, d dialect.Dialect, status int) []byte {
	e := gjson.ParseBytes(body)
	if e.Get("error.message").Type == gjson.String && (d != dialect.Messages || e.Get("type").String() == "error") {
		return append([]byte(nil), body...)
	}
	message := "the upstream reported an error"
	for _, path := range [...]string{"error.message", "response.error.message", "message", "error_msg", "base_resp.status_msg", "error", "detail"} {
		if m := e.Get(path); m.Type == gjson.String && m.String() != "" {
			message = m.String()
			break
		}
	}
	return (&refusal{status: status, code: codeUpstreamError, message: message}).body(d)
}

// write passes the failure on.
func (f *passOn) write(w http.ResponseWriter) error {
	h := w.Header()
	maps.Copy(h, f.header)
	h.Set("Content-Length", strconv.Itoa(len(f.body)))
	h.Set("X-Should-Retry", "false")
	w.WriteHeader(f.status)
	_, _ = w.Write(f.body)
	return nil
}

// cleanRetryAfter leaves one Retry-After that callers can read, or none.
func cleanRetryAfter(h http.Header, now time.Time) {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err != nil || !(ms > 0 && ms < math.MaxInt32) {
		h.Del("Retry-After-Ms")
	}
	values := h.Values("Retry-After")
	if len(values) == 0 {
		return
	}
	if clean := hint.CleanRetryAfter(values, now, h.Get("Date")); clean != "" {
		h.Set("Retry-After", clean)
	} else {
		h.Del("Retry-After")
	}
}

// deliver commits: from here on nothing is replayed.
func (f *failover) deliver(x *exchange) error {
	if f.in.rest == nil {
		f.in.done() // a stream may last long after its request is of no use
	}
	begun := f.alive.stop()
	h := f.w.Header()
	if !begun {
		x.copyHeader(h)
	}
	f.outcome = outcomeOK
	if f.trace.attempts > 1 {
		f.outcome = outcomeFailover
		f.logServed(x)
	}
	took := x.clock.Now().Sub(f.in.arrived)
	f.pool.counters.first.Observe(took.Seconds())
	f.pool.counters.overhead.Observe(max(took-f.waited-f.upstream, 0).Seconds())
	if x.found == FoundUpgrade {
		return f.openTunnel(x)
	}
	if x.whole && !x.stream {
		x.visit.settle()
		var used dialect.Usage
		if f.counts(x) {
			used.Look(f.in.route.Dialect, x.held.data)
		}
		x.used(f.in.model, used)
		body := x.visit.secret.scrub(x.held.data)
		if f.in.Method != http.MethodHead && x.response.StatusCode >= 200 && x.response.StatusCode != http.StatusNoContent && x.response.StatusCode != http.StatusNotModified {
			h.Set("Content-Length", strconv.Itoa(len(body)))
		}
		f.w.WriteHeader(x.response.StatusCode)
		_, _ = f.w.Write(body) // if the caller has left, there is nobody to tell
		return nil
	}
	r := relay{
		x: x, w: f.w, flusher: http.NewResponseController(f.w),
		dialect: f.in.route.Dialect, judged: f.in.route.Generates, counted: f.counts(x), idleContent: f.pool.policy.idleContent,
	}
	defer func() { x.used(f.in.model, r.usage) }()
	// From here on a failure is a new one, also of a key that has just proved itself.
	x.visit.charged, x.visit.started = false, sequence.Load()
	var err error
	if x.stream {
		if !begun {
			h.Del("Content-Length")
			f.w.WriteHeader(x.response.StatusCode)
		}
		err = r.stream(&f.pool.policy)
	} else {
		f.w.WriteHeader(x.response.StatusCode)
		err = r.plain(&f.pool.policy)
	}
	if err == nil {
		return nil
	}
	f.outcome = outcomeCanceled
	if errors.Is(err, errCallerLeft) || f.in.left() {
		return nil
	}
	if f.in.fault() != nil { // the upstream cannot answer what it did not get
		panic(http.ErrAbortHandler)
	}
	return f.brokenOff(x, &r, err)
}

// counts reports whether what an answer says of tokens was used by this request: who only asks for the state of a run or a
// response is told its usage each time.
func (f *failover) counts(x *exchange) bool {
	return f.in.Method == http.MethodPost && (x.stream || f.in.route.Generates || isJSONType(x.response.Header))
}

// brokenOff ends an answer that failed after its first content: the dialect's error event, then a cut transfer.
func (f *failover) brokenOff(x *exchange, r *relay, err error) error {
	now := x.clock.Now()
	f.verdict = classify(r.evidence(f.in, err, now))
	f.verdict.Hint = string(x.visit.secret.scrub([]byte(f.verdict.Hint)))
	f.trace.class = f.verdict.Class
	f.outcome = outcomeBroken
	x.traced.judged(f.verdict, x.status())
	x.visit.record(f.verdict, 0, f.othersCanServe, now)
	x.visit.emit(change{event: eventStreamFailed, target: targetKey, reason: f.verdict.Class})
	f.logBrokenOff(x, r)
	if x.stream {
		event := x.visit.secret.scrub(r.failing)
		if _, bare := unframed(event); len(event) == 0 || x.framing == eventStream && bare != nil { // which no client would see
			refusal := refusal{status: http.StatusBadGateway, code: codeFailedMidStream, message: "the upstream's stream failed: " + f.verdict.Reason}
			event = x.framing.write(&refusal, r.dialect)
		}
		_ = r.write(event) // the transfer is cut in any case
	}
	panic(http.ErrAbortHandler) // the only way to tell a caller that a begun answer is not whole
}
