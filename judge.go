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
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// recorded is an upstream's answer as it is written down, one a line, in corpora of failures. With status 0 none
// came: the body is the error's text, and transport_error its kind.
type recorded struct {
	ID        string            `json:"id"`
	Provider  string            `json:"provider"`
	API       string            `json:"api"`
	Model     string            `json:"model"`
	Status    int               `json:"status"`
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body"`
	Stream    bool              `json:"stream"`
	Transport string            `json:"transport_error"`
	Class     string            `json:"class"`
}

// evidence is what the gateway would have of the answer: it is read by what reads running ones, to its end. Beyond
// that it is told which answers a safety filter left empty; these are delivered like any other.
func (r *recorded) evidence(now time.Time) Evidence {
	route := dialect.Route{Dialect: dialect.Chat, Generates: true}
	if d := dialect.Dialect(r.API); slices.Contains(dialect.All, d) {
		route.Dialect = d
	}
	in := &inbound{Request: &http.Request{Method: http.MethodPost}, route: route}
	x := r.exchange()
	defer x.dog.stop()
	if x.response == nil {
		return x.evidence(in, now)
	}
	p := newPolicy(new(Handler))
	x.hold(in, &p, time.Time{})
	e := x.evidence(in, now)
	if x.found != FoundNothing || e.Status < 200 || e.Status > 299 {
		return e
	}
	if endedByFilter(x, route.Dialect, []byte(r.Body)) {
		e.Found = FoundFiltered
		return e
	}
	if x.stream {
		w := discarded{make(http.Header)}
		rest := relay{x: x, w: w, flusher: http.NewResponseController(w), dialect: route.Dialect, judged: true}
		if err := rest.stream(&p); err != nil {
			return rest.evidence(in, err, now)
		}
	}
	return e
}

// exchange is the call that brought the answer.
func (r *recorded) exchange() *exchange {
	x := &exchange{clock: machineClock{}, asked: time.Now()}
	x.visit = &visit{credential: &credential{secret: new(secret), provider: &provider{vendor: vendorNamed(r.Provider)}}, model: r.Model}
	x.ctx, x.cancel = context.WithCancelCause(context.Background())
	x.dog.clock, x.dog.cancel = x.clock, x.cancel
	if r.Status == 0 {
		x.err = errors.New(r.Body)
		if r.Transport == "client_canceled" {
			x.err = context.Canceled
		}
		return x
	}
	x.response = &http.Response{
		StatusCode: r.Status, Header: make(http.Header), ContentLength: -1, Body: io.NopCloser(strings.NewReader(r.Body)),
	}
	h := x.response.Header
	for name, value := range r.Headers {
		h.Set(name, value)
	}
	h.Del("Content-Encoding") // what is written down is readable
	if r.Stream && h.Get("Content-Type") == "" {
		h.Set("Content-Type", "text/event-stream")
	}
	return x
}

// discarded is a caller who takes all and keeps nothing.
type discarded struct{ header http.Header }

func (d discarded) Header() http.Header       { return d.header }
func (discarded) Write(b []byte) (int, error) { return len(b), nil }
func (discarded) WriteHeader(int)             {}
func (discarded) Flush()                      {}

// endedByFilter reports whether a safety filter ended an answer before there was any text of it.
func endedByFilter(x *exchange, d dialect.Dialect, body []byte) bool {
	if !x.stream {
		return !holdsText(body) && filtered(body)
	}
	for len(body) > 0 {
		size := x.framing.next(body)
		if size == 0 {
			size = len(body)
		}
		data, signal := x.framing.read(d, body[:size])
		if signal&dialect.Content != 0 {
			return signal&dialect.Finished != 0 && filtered(data)
		}
		body = body[size:]
	}
	return false
}

// filtered reports whether an answer says that a safety filter ended it.
func filtered(body []byte) bool {
	s := hear(nil, body)
	for _, reason := range s.finish {
		if reason == "refusal" {
			return true
		}
	}
	for _, reasons := range [][]string{s.finish, s.codes} {
		if row := codeWords.find(codeTokens(reasons), "", 200, nil); row != nil && row.class == ContentPolicy {
			return true
		}
	}
	return false
}

// holdsText reports whether any dialect's place for an answer's content holds something.
func holdsText(body []byte) bool {
	for _, place := range []string{
		"choices.0.message.content", "choices.0.message.refusal", "choices.0.message.tool_calls", "choices.0.text",
		"candidates.0.content.parts", "content.0", "output.0",
	} {
		if v := gjson.GetBytes(body, place); v.Exists() && v.String() != "" && v.Raw != "[]" {
			return true
		}
	}
	return false
}
