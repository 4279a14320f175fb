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
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// TestWatchdog: it bites when its time is over, once, and says why; setting it anew moves the time in both directions.
func TestWatchdog(t *testing.T) {
	type step struct {
		at  time.Duration
		set func(d *watchdog, now time.Time)
	}
	until := func(what limit, in time.Duration) func(*watchdog, time.Time) {
		return func(d *watchdog, now time.Time) { d.until(what, in, now.Add(in), time.Time{}) }
	}
	off := func(d *watchdog, _ time.Time) { d.off() }
	for _, tc := range []struct {
		what  string
		steps []step
		bites time.Duration // 0: never
		limit limit
	}{
		{"in time", []step{{0, until(limitHeaders, time.Second)}}, time.Second, limitHeaders},
		{"never set", nil, 0, 0},
		{"off", []step{{0, until(limitHeaders, 2*time.Second)}, {time.Second, off}}, 0, 0},
		{"off and on", []step{{0, until(limitHeaders, 2*time.Second)}, {time.Second, off}, {5 * time.Second, until(limitIdle, time.Second)}}, 6 * time.Second, limitIdle},
		{"later", []step{{0, until(limitHeaders, 2*time.Second)}, {time.Second, until(limitIdle, 9*time.Second)}}, 10 * time.Second, limitIdle},
		{"later, again and again", []step{{0, until(limitIdle, 2*time.Second)}, {time.Second, until(limitIdle, 2*time.Second)}, {2 * time.Second, until(limitIdle, 2*time.Second)}}, 4 * time.Second, limitIdle},
		{"earlier", []step{{0, until(limitHeaders, time.Minute)}, {time.Second, until(limitIdle, time.Second)}}, 2 * time.Second, limitIdle},
		{"at once", []step{{0, until(limitIdle, 0)}}, time.Nanosecond, limitIdle},
		{"a deadline that comes first", []step{{0, func(d *watchdog, now time.Time) {
			d.until(limitHeaders, time.Minute, now.Add(time.Minute), now.Add(3*time.Second))
		}}}, 3 * time.Second, limitDeadline},
		{"a deadline that comes later", []step{{0, func(d *watchdog, now time.Time) {
			d.until(limitHeaders, time.Second, now.Add(time.Second), now.Add(3*time.Second))
		}}}, time.Second, limitHeaders},
		{"stopped", []step{{0, until(limitHeaders, 2*time.Second)}, {time.Second, func(d *watchdog, _ time.Time) { d.stop() }}}, 0, 0},
	} {
		t.Run(tc.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				d := &watchdog{clock: machineClock{}, cancel: cancel}
				begun := time.Now()
				for _, s := range tc.steps {
					advance(s.at - time.Since(begun))
					s.set(d, time.Now())
				}
				limited, stop := context.WithTimeout(ctx, time.Hour)
				defer stop()
				<-limited.Done()
				var l *limitError
				switch cause := context.Cause(ctx); {
				case tc.bites == 0 && cause != nil:
					t.Errorf("%v after %v", cause, time.Since(begun))
				case tc.bites == 0:
				case !errors.As(cause, &l) || l.limit != tc.limit || !l.Timeout() || time.Since(begun) > tc.bites || tc.bites > time.Nanosecond && time.Since(begun) < tc.bites:
					t.Errorf("%v after %v, want %s after %v", cause, time.Since(begun), &limitError{tc.limit, tc.bites}, tc.bites)
				}
				d.stop()
			})
		})
	}
}

// TestUpstreamHeader: what may travel, and what stays.
func TestUpstreamHeader(t *testing.T) {
	caller := http.Header{
		"Content-Type": {"application/json"}, "Accept": {"*/*"}, "Anthropic-Version": {"2023-06-01"}, "Openai-Beta": {"x"}, "X-Custom": {"1", "2"},
		"User-Agent": {"sdk/1.0"}, "Idempotency-Key": {"i"},
	}
	stays := []string{
		"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Proxy-Authorization", "Cookie", "Openai-Organization", "Openai-Project",
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Forwarded", "Via", "Connection", "Keep-Alive", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Proxy-Connection", "Expect", "Host", "Content-Length", "Sec-Websocket-Key", "Sec-Websocket-Protocol", "X-Hop", "X-Leap",
	}
	for _, name := range stays {
		caller[name] = []string{"secret"}
	}
	caller["Connection"] = []string{"keep-alive, x-hop", "X-LEAP"}
	caller["Accept-Encoding"] = []string{"gzip"}
	before := caller.Clone()
	h := upstreamHeader(caller)
	for _, name := range stays {
		if _, travels := h[name]; travels {
			t.Errorf("%s travels", name)
		}
	}
	for _, name := range []string{"Content-Type", "Accept", "Anthropic-Version", "Openai-Beta", "X-Custom", "User-Agent", "Idempotency-Key"} {
		if !slices.Equal(h[name], caller[name]) {
			t.Errorf("%s: %v", name, h[name])
		}
	}
	if got := h.Get("Accept-Encoding"); got != "identity" {
		t.Errorf("Accept-Encoding: %s", got)
	}
	for name := range before {
		if !slices.Equal(before[name], caller[name]) {
			t.Errorf("the caller's %s became %v", name, caller[name])
		}
	}
	if v, given := upstreamHeader(http.Header{})["User-Agent"]; !given || v != nil {
		t.Error("the transport would send a User-Agent of its own")
	}
}

// TestAuthorize: the credential goes over one header, the one that the dialect or the config says.
func TestAuthorize(t *testing.T) {
	for _, tc := range []struct {
		auth  *Auth
		path  string
		field string
		value string
	}{
		{nil, "/v1/chat/completions", "Authorization", "Bearer secret-of-a-k1"},
		{nil, "/v1/responses", "Authorization", "Bearer secret-of-a-k1"},
		{nil, "/v1/messages", "X-Api-Key", "secret-of-a-k1"},
		{nil, "/v1beta/models/m:generateContent", "X-Goog-Api-Key", "secret-of-a-k1"},
		{&Auth{Scheme: "bearer"}, "/v1/messages", "Authorization", "Bearer secret-of-a-k1"},
		{&Auth{Scheme: "api-key"}, "/v1/chat/completions", "Api-Key", "secret-of-a-k1"},
		{&Auth{Scheme: "x-api-key"}, "/v1/chat/completions", "X-Api-Key", "secret-of-a-k1"},
		{&Auth{Scheme: "x-goog-api-key"}, "/v1/chat/completions", "X-Goog-Api-Key", "secret-of-a-k1"},
		{&Auth{Scheme: "header", Field: "x-token", Value: "k={key}"}, "/v1/chat/completions", "X-Token", "k=secret-of-a-k1"},
	} {
		provider := testProvider("a", "k1")
		provider.Auth = tc.auth
		p, cleanup := testHandler(t, &Handler{Pool: t.Name(), Providers: []*Provider{provider}}, noTransport{}, nil)
		r := httptest.NewRequest(http.MethodPost, tc.path+"?key=mine&a=1", strings.NewReader(simChat))
		r.Header.Set("Authorization", "Bearer mine")
		in := inboundOf(t, inCaddy(r), 1<<20)
		req, err := (&visit{credential: p.key("k1")}).request(in)
		if err != nil {
			t.Fatal(err)
		}
		secrets := 0
		for name, values := range req.Header {
			if strings.Contains(strings.Join(values, " "), "secret") {
				secrets++
			}
			if strings.Contains(strings.Join(values, " "), "mine") {
				t.Errorf("the caller's own credential travels in %s", name)
			}
		}
		if got := req.Header[tc.field]; !slices.Equal(got, []string{tc.value}) || secrets != 1 {
			t.Errorf("%+v %s: %v", tc.auth, tc.path, req.Header)
		}
		if req.URL.RawQuery != "a=1" || req.Host != "a.example" || req.GetBody != nil {
			t.Errorf("%s, host %s", req.URL, req.Host)
		}
		req.Body.Close()
		cleanup()
	}
}

// silent never says anything more, until its request is given up.
func silent(status int, header http.Header, beginning string) simOutcome {
	return simOutcome{status: status, header: header, parts: []simPart{{text: beginning}}, open: true}
}

// TestSilentUpstreams: every wait for an upstream ends, whatever it has sent before and in whatever encoding.
func TestSilentUpstreams(t *testing.T) {
	for _, tc := range []struct {
		what string
		o    simOutcome
		most time.Duration
	}{
		{"no headers", simOutcome{delay: time.Hour}, 10 * time.Second},
		{"no body", silent(200, http.Header{"Content-Type": {"application/json"}}, ""), 5 * time.Second},
		{"half a body", silent(200, http.Header{"Content-Type": {"application/json"}}, `{"choices"`), 5 * time.Second},
		{"no body of an error", silent(500, http.Header{"Content-Type": {"application/json"}}, ""), 2 * time.Second},
		{"no event", silent(200, http.Header{"Content-Type": {"text/event-stream"}}, ""), 5 * time.Second},
		{"no content", silent(200, http.Header{"Content-Type": {"text/event-stream"}}, ": ping\n\n"), 5 * time.Second},
		{"no body, gzip", silent(200, http.Header{"Content-Encoding": {"gzip"}}, ""), 5 * time.Second},
		{"no body, deflate", silent(200, http.Header{"Content-Encoding": {"deflate"}}, ""), 5 * time.Second},
		{"no body, zstd", silent(200, http.Header{"Content-Encoding": {"zstd"}}, ""), 5 * time.Second},
		{"no stream, gzip", silent(200, http.Header{"Content-Encoding": {"gzip"}, "Content-Type": {"text/event-stream"}}, "\x1f\x8b"), 5 * time.Second},
		{"no body of an error, gzip", silent(500, http.Header{"Content-Encoding": {"gzip"}}, ""), 2 * time.Second},
	} {
		t.Run(tc.what, func(t *testing.T) {
			none := 0
			h := &Handler{
				Providers: []*Provider{testProvider("a", "k1")}, Retry: &Retry{MaxRetries: &none},
				Timeouts: &Timeouts{Headers: caddy.Duration(10 * time.Second), Idle: caddy.Duration(5 * time.Second)},
			}
			inVirtualTime(t, h, always(tc.o), func(p *play) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour) // else the test would hang
				defer cancel()
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(simChat))
				if w, took := p.send(r); took > tc.most || w.status < 500 {
					t.Errorf("%d after %v, want at most %v", w.status, took, tc.most)
				}
			})
		})
	}
}

// lastWords is a body whose last bytes come together with an error.
type lastWords struct {
	parts []string
	err   error
}

func (b *lastWords) Read(p []byte) (int, error) {
	if len(b.parts) == 0 {
		return 0, b.err
	}
	n := copy(p, b.parts[0])
	if b.parts = b.parts[1:]; len(b.parts) == 0 {
		return n, b.err
	}
	return n, nil
}

func (*lastWords) Close() error { return nil }

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestLastWords: whole events that come in one read with the error that ends the connection still reach the caller,
// and if the stream's ending is among them, nothing was lost at all. (net/http's chunked reader gives both at once.)
func TestLastWords(t *testing.T) {
	s := simStreams["chat"]
	for _, tc := range []struct {
		last    string
		aborted bool
	}{{s.content + s.ending, false}, {s.content, true}} {
		transport := transportFunc(func(r *http.Request) (*http.Response, error) {
			r.Body.Close()
			return &http.Response{
				StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Request: r, ContentLength: -1,
				Body: &lastWords{parts: []string{s.content, tc.last}, err: io.ErrUnexpectedEOF},
			}, nil
		})
		p, cleanup := testHandler(t, &Handler{Pool: t.Name(), Providers: []*Provider{testProvider("a", "k1")}}, transport, nil)
		w, _ := (&play{t: t, pool: p}).post(`{"model":"m","stream":true}`)
		if w.aborted != tc.aborted || !strings.HasPrefix(w.body.String(), s.content+tc.last) {
			t.Errorf("aborted %v: %s", w.aborted, w.body.String())
		}
		cleanup()
	}
}

// deafWriter is a caller who takes nothing.
type deafWriter struct{ simWriter }

func (*deafWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestCallerWhoTakesNothing: once an answer has begun, an error of writing it is not told to Caddy, which would write
// another one.
func TestCallerWhoTakesNothing(t *testing.T) {
	poor := simError(402, BillingError, ScopeAccount, "billing_error", "Insufficient balance")
	for _, o := range []simOutcome{simOK, poor, {err: simRefused}} {
		inVirtualTime(t, &Handler{Providers: []*Provider{testProvider("a", "k1")}}, always(o), func(p *play) {
			w := &deafWriter{simWriter{header: make(http.Header)}}
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(simChat))
			if err := p.pool.serve(w, inCaddy(r)); err != nil || w.writes != 1 {
				t.Errorf("status %d, %d answers: %v", w.status, w.writes, err)
			}
		})
	}
}
