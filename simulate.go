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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
	"github.com/llmfailover/caddy-llm-failover/internal/storm"
	"github.com/llmfailover/caddy-llm-failover/internal/virtual"
)

// simulation is a storm: the callers of a scenario, its providers, and between them a pool, all in virtual time.
type simulation struct {
	scenario *storm.Scenario
	clock    *virtual.Clock
	random   *rand.Rand
	upstream *storm.Upstream
	recorder *storm.Recorder
	targets  []storm.Target
	pool     *pool // nil: the callers ask the first key's provider themselves
	path     string
	body     string
	answer   func() *http.Response
}

// simulationStart is when every simulation begins.
var simulationStart = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// virtualClock is a virtual clock as a pool's.
type virtualClock struct{ *virtual.Clock }

func (c virtualClock) AfterFunc(d time.Duration, f func()) timer { return c.Clock.AfterFunc(d, f) }

// simulateStorm has the callers of a scenario ask the pool of a config, or without direct calls between them their first
// key's provider, and tells what came of it. The config's secrets are not needed.
func simulateStorm(config []byte, scenario *storm.Scenario, seed uint64, name string, direct bool) (*storm.Run, error) {
	h := new(Handler)
	if err := json.Unmarshal(config, h); err != nil {
		return nil, err
	}
	for _, p := range h.Providers {
		if p == nil {
			continue // what is wrong with it Provision says
		}
		p.TransportRaw = nil
		for i, k := range p.Keys {
			if k != nil {
				k.Secret = fmt.Sprintf("simulated %s %d.", p.Name, i)
			}
		}
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	err := h.Provision(ctx)
	defer func() { _ = h.Cleanup() }() // of an entry that it did acquire; nothing else can fail
	if err != nil {
		return nil, err
	}
	s := &simulation{scenario: scenario, clock: virtual.New(simulationStart), random: rand.New(rand.NewPCG(seed, 0))}
	s.recorder = storm.NewRecorder(name, scenario)
	for _, c := range h.pool.Load().credentials {
		s.targets = append(s.targets, storm.Target{Provider: c.provider.name, Key: c.name})
	}
	s.upstream = storm.NewUpstream(scenario, s.targets)
	if err := s.upstream.Check(); err != nil {
		return nil, err
	}
	if err := s.word(h.pool.Load()); err != nil {
		return nil, err
	}
	if !direct {
		s.pool = h.pool.Load()
		s.pool.clock, s.pool.random, s.pool.logger = virtualClock{s.clock}, s.random.Float64, zap.NewNop()
		for _, p := range s.pool.providers {
			p.transport = &simulatedProvider{s, p}
		}
	}
	for n := range scenario.Callers {
		s.clock.Go(func() { s.caller(n) })
	}
	s.clock.Run()
	return s.recorder.Run(), nil
}

// word chooses a request that the pool serves, and its good answer.
func (s *simulation) word(p *pool) error {
	for _, talk := range simulatedTalks {
		for _, c := range p.credentials {
			model := s.scenario.Model
			if model == "" {
				model = c.someModel()
			}
			if c.serves(talk.dialect, model) {
				s.path, s.body = strings.ReplaceAll(talk.path, "MODEL", url.PathEscape(model)), fmt.Sprintf(talk.body, model, s.scenario.Stream)
				body, kind := talk.answer, "application/json"
				if s.scenario.Stream {
					body, kind = talk.stream, "text/event-stream"
					s.path = strings.Replace(s.path, ":generateContent", ":streamGenerateContent?alt=sse", 1)
				}
				s.answer = func() *http.Response {
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1}
				}
				return nil
			}
		}
	}
	return fmt.Errorf("no key of pool %s serves the model %q", p.name, s.scenario.Model)
}

// someModel is a model that the key serves, as far as its config names any.
func (c *credential) someModel() string {
	names := slices.Clone(c.models)
	for _, m := range c.provider.config.Models {
		names = append(names, m.Asked)
	}
	for _, name := range append(names, "m") {
		if name = strings.ReplaceAll(name, "*", "x"); c.serves("", name) || len(c.provider.config.Dialects) > 0 && c.serves(dialect.Dialect(c.provider.config.Dialects[0]), name) {
			return name
		}
	}
	return "m"
}

// simulatedTalks are the requests that callers make, and their answers.
var simulatedTalks = []struct {
	dialect                    dialect.Dialect
	path, body, answer, stream string
}{
	{
		dialect.Chat, "/v1/chat/completions", `{"model":%q,"stream":%t,"messages":[{"role":"user","content":"hello"}]}`,
		`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}`,
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"}}]}\n\ndata: [DONE]\n\n",
	},
	{
		dialect.Messages, "/v1/messages", `{"model":%q,"stream":%t,"max_tokens":9,"messages":[{"role":"user","content":"hello"}]}`,
		`{"type":"message","role":"assistant","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn"}`,
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n" +
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
	},
	{
		dialect.Responses, "/v1/responses", `{"model":%q,"stream":%t,"input":"hello"}`,
		`{"object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"hello"}]}]}`,
		"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hello\"}\n\n" +
			"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n",
	},
	{
		dialect.Gemini, "/v1beta/models/MODEL:generateContent", `{"contents":[{"parts":[{"text":"hello to %s, %t"}]}]}`,
		`{"candidates":[{"content":{"parts":[{"text":"hello"}],"role":"model"},"finishReason":"STOP"}]}`,
		"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hello\"}]},\"finishReason\":\"STOP\"}]}\n\n",
	},
}

func (s *simulation) now() time.Duration { return s.clock.Now().Sub(simulationStart) }

func (s *simulation) sleep(d time.Duration) { s.clock.Wait(context.Background(), d, nil) }

// caller makes one caller's requests.
func (s *simulation) caller(n int) {
	s.sleep(time.Duration(s.scenario.Arrive) * time.Duration(n) / time.Duration(s.scenario.Callers))
	for i := range s.scenario.Requests {
		if i > 0 {
			s.sleep(time.Duration(s.scenario.Pause))
		}
		s.recorder.Request(s.request(n))
	}
}

// The rest between an SDK's tries, as those that Stainless generates have it: doubling, a little less by chance, or
// what the answer asks for, up to a minute.
const (
	sdkRest     = 500 * time.Millisecond
	sdkRestCap  = 8 * time.Second
	sdkChance   = 0.25
	sdkLongest  = time.Minute
	sdkRetryNot = "false"
)

// request makes one request, and what its SDK makes of it.
func (s *simulation) request(caller int) storm.Result {
	for n := 0; ; n++ {
		t := s.try(caller, n)
		if t.result == storm.Done || n >= *s.scenario.Retries || !t.retried(s.scenario.Stubborn) {
			return t.result
		}
		rest := doubled(sdkRest, n, sdkRestCap)
		rest -= time.Duration(float64(rest) * sdkChance * s.random.Float64())
		if seconds, err := strconv.ParseFloat(t.w.header.Get("Retry-After"), 64); err == nil && seconds > 0 && seconds <= sdkLongest.Seconds() {
			rest = time.Duration(seconds * float64(time.Second))
		}
		s.sleep(rest)
	}
}

// simulatedTry is one try of a request.
type simulatedTry struct {
	w        simulatedWriter
	calls    int
	upstream time.Duration // spent in upstream calls
	gaveUp   bool          // the caller's patience was over
	result   storm.Result
}

// retried reports whether an SDK tries again.
func (t *simulatedTry) retried(stubborn bool) bool {
	switch {
	case t.gaveUp:
		return true
	case !stubborn && t.w.header.Get("X-Should-Retry") == sdkRetryNot:
		return false
	}
	switch t.w.status {
	case 0: // no answer: the connection failed
		return true
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return t.w.status >= http.StatusInternalServerError
}

type simulatedTryKey struct{}

func (s *simulation) try(caller, n int) *simulatedTry {
	t := &simulatedTry{w: simulatedWriter{header: make(http.Header)}}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), simulatedTryKey{}, t))
	defer cancel()
	patience := s.clock.AfterFunc(time.Duration(s.scenario.Patience), func() {
		t.gaveUp = true
		cancel()
	})
	defer patience.Stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway"+s.path, strings.NewReader(s.body))
	if err != nil {
		panic(err) // the path is ours
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(fieldRetryCount, strconv.Itoa(n))
	r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", caller>>16&0xff, caller>>8&0xff, caller&0xff)

	begun := s.clock.Now()
	whole := s.serve(t, r)
	switch {
	case whole && t.w.status/100 == 2:
		t.result = storm.Done
	case t.calls == 0:
		t.result = storm.Refused
	default:
		t.result = storm.Failed
	}
	s.recorder.Try(s.now(), t.result, s.clock.Now().Sub(begun)-t.upstream)
	return t
}

// serve answers a try, and reports whether the answer was whole.
func (s *simulation) serve(t *simulatedTry, r *http.Request) (whole bool) {
	defer func() {
		if reason := recover(); reason != nil && reason != http.ErrAbortHandler { //nolint:errorlint // it is the value
			panic(reason)
		}
	}()
	if s.pool == nil {
		response, err := s.call(t, r.Context(), s.targets[0])
		if err != nil {
			return false
		}
		for name, values := range response.Header {
			t.w.header[name] = values
		}
		t.w.status = response.StatusCode
		return true
	}
	if err := s.pool.serve(&t.w, caddyhttp.PrepareRequest(r, caddy.NewReplacer(), &t.w, nil)); err != nil {
		t.w.status = http.StatusInternalServerError
	}
	return true
}

// simulatedWriter is as much of an answer as an SDK looks at.
type simulatedWriter struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (w *simulatedWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *simulatedWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *simulatedWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(b), nil
}

// Flush implements http.Flusher.
func (w *simulatedWriter) Flush() { w.WriteHeader(http.StatusOK) }

// simulatedProvider is the transport to one provider.
type simulatedProvider struct {
	*simulation
	provider *provider
}

// RoundTrip implements http.RoundTripper.
func (s *simulatedProvider) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	for _, c := range s.provider.keys {
		if !carries(r.Header, c.secret.value) {
			continue
		}
		target := storm.Target{Provider: s.provider.name, Key: c.name}
		if c.probing() {
			defer s.recorder.Probe(target)()
		}
		t, _ := r.Context().Value(simulatedTryKey{}).(*simulatedTry)
		return s.call(t, r.Context(), target)
	}
	return nil, errors.New("the request carries no key")
}

// carries reports whether a header has a field with the secret.
func carries(h http.Header, secret string) bool {
	for _, values := range h {
		if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, secret) }) {
			return true
		}
	}
	return false
}

// probing reports whether a call of the key finds out whether it, its account or its provider is back.
func (c *credential) probing() bool {
	for _, h := range c.halts() {
		if b := h.look(); b.probe != nil {
			return true
		}
	}
	c.facts.mu.Lock()
	defer c.facts.mu.Unlock()
	return c.facts.circuit.probe != nil || c.facts.rejected.probe != nil
}

// call is an upstream call.
func (s *simulation) call(t *simulatedTry, ctx context.Context, to storm.Target) (*http.Response, error) {
	o := s.upstream.Answer(to, s.now())
	t.calls++
	begun := s.clock.Now()
	// A call that is given up is no success, whatever would have come of it.
	defer func(at time.Duration) { s.recorder.Call(at, o.Good() && ctx.Err() == nil) }(s.now())
	if o.Error == storm.ErrorSilent {
		o.Delay = noDeadline
	}
	s.clock.Wait(ctx, o.Delay, nil)
	t.upstream += s.clock.Now().Sub(begun)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch o.Error {
	case storm.ErrorRefused:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case storm.ErrorReset:
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	case storm.ErrorDNS:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: to.Provider, IsNotFound: true}}
	}
	if o.Good() {
		return s.answer(), nil
	}
	return &http.Response{StatusCode: o.Status, Header: o.Header, Body: io.NopCloser(strings.NewReader(o.Body)), ContentLength: int64(len(o.Body))}, nil
}
