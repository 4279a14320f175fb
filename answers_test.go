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
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestRefusalsSpeakTheCallersDialect: a failure that we word ourselves, JSON even where a stream was asked for.
func TestRefusalsSpeakTheCallersDialect(t *testing.T) {
	eachFamily(t, func(t *testing.T, f *family) {
		a := newUpstream(t).on("k1", fails(402, "Insufficient Balance"))
		s := serve(t, pair(a, quick))
		s.post(f.path, f.request).want(402, "Insufficient Balance").wantHeader("Content-Type", "application/json", "X-Should-Retry", "false")
		got := s.post(f.path, f.request).want(503).wantHeader("Content-Type", "application/json", "X-Should-Retry", "").
			wantJSON(f.refusal, f.refusalSaid, "error.attempts", "", "attempts", "")
		seconds, err := strconv.Atoi(got.header.Get("Retry-After"))
		if err != nil || seconds < 58 || seconds > 60 {
			t.Error("Retry-After", got.header.Get("Retry-After"))
		}
		if ms, err := strconv.Atoi(got.header.Get("Retry-After-Ms")); err != nil || ms < 58_000 || ms > 60_000 {
			t.Error("retry-after-ms", got.header.Get("Retry-After-Ms"))
		}
		switch f.name {
		case "messages":
			got.wantJSON("type", "error")
		case "gemini":
			got.wantJSON("error.code", "503")
		default:
			got.wantJSON("error.type", "api_error")
		}
		a.wantOrder("k1")
	})
}

func TestExhaustedAttemptsAreListed(t *testing.T) {
	eachFamily(t, func(t *testing.T, f *family) {
		a := newUpstream(t).on("k1", just(rst{})).on("k2", just(rst{}))
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+quick+"}")
		at := "error.attempts."
		if f.name == "messages" || f.name == "gemini" {
			at = "attempts."
		}
		s.post(f.path, f.request).want(502).wantHeader("X-Should-Retry", "false", "Retry-After", "").wantJSON(
			at+"#", "2", at+"0.provider", "default", at+"0.key", "k1", at+"0.class", "server_error", at+"0.status", "", at+"1.key", "k2")
	})
}

// TestWhatTheCallerHearsInTheEnd pins §5.9.
func TestWhatTheCallerHearsInTheEnd(t *testing.T) {
	const path = "/v1/chat/completions"
	badKey := fails(401, "Incorrect API key provided")
	for _, tc := range []struct {
		name   string
		k1, k2 reply
		status int
		words  string
		code   string
	}{
		{"the last upstream failure", fails(500, "first"), fails(503, "second"), 503, "second", ""},
		{"one before a refused credential", fails(500, "first"), badKey, 500, "first", ""},
		{"one before a failure without a body", fails(500, "first"), just(rst{}), 500, "first", ""},
		{"a redirect is no answer", fails(500, "first"), says(302, "", "Location", "http://x/"), 500, "first", ""},
		{"all credentials refused", badKey, badKey, 502, "", "upstream_credentials"},
		{"timeouts", just(hang{}), just(hang{}), 504, "", "timeout"},
		{"nothing usable", says(200, ""), says(200, ""), 502, "", "attempts_exhausted"},
		{"cut short", says(200, `{"choices":[`, "Content-Length", "100"), just(rst{}), 502, "", "attempts_exhausted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newUpstream(t).on("k1", tc.k1).on("k2", tc.k2)
			s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+short+"}")
			got := s.post(path, chat("m")).want(tc.status, tc.words).wantHeader("X-Should-Retry", "false", "Location", "")
			if tc.code != "" {
				got.wantJSON("error.code", tc.code)
			} else {
				got.lacks("attempts")
			}
			if order := a.order(); order != "k1 k2" && order != "k1 k2 k2" { // a kept connection that is reset is tried once more
				t.Error(order)
			}
		})
	}
	t.Run("nobody can be reached", func(t *testing.T) {
		s := serve(t, "llm_failover http://"+freeAddress(t)+" {\n"+keysOf("k1")+quick+"}")
		s.post(path, chat("m")).want(502).wantJSON("error.code", "upstream_unreachable", "error.attempts.0.class", "provider_unavailable")
		s.post(path, chat("m")).want(503).wantJSON("error.code", "all_halted")
	})
	t.Run("deadline", func(t *testing.T) {
		a := newUpstream(t).on("k1", just(hang{}))
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+"timeouts {\ndeadline 200ms\n}\nretry {\nmin_attempt 100ms\n}\n}")
		if got := s.post(path, chat("m")).want(504).wantJSON("error.code", "deadline", "error.type", "timeout_error"); got.took > 5*time.Second {
			t.Error("took", got.took)
		}
		a.wantOrder("k1")
		s.wantState("default.keys.k1.circuit.failures", "0") // the key has kept within its own limits
	})
	t.Run("an error in an answer", func(t *testing.T) {
		a := newUpstream(t).on("k1", says(200, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`))
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+quick+"}")
		s.post(path, chat("m")).want(429, "Rate limit reached").wantHeader("X-Should-Retry", "false")
	})
	t.Run("too large for this server", func(t *testing.T) {
		a := newUpstream(t)
		s := serve(t, "request_body {\nmax_size 1KB\n}\n"+pair(a))
		s.post(path, bigChat("x", 5000)).want(413)
		a.wantOrder("")
	})
	t.Run("disabled", func(t *testing.T) {
		a := newUpstream(t)
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+"}")
		s.ask("POST", "/llm_failover/default/default/k1/disable").want(200)
		s.post(path, chat("m")).want(503).wantHeader("Retry-After", "10")
		a.wantOrder("")
	})
}

// TestRetryAfterIsReadable: what an upstream asks for is handed on in a form that clients can read, or not at all.
func TestRetryAfterIsReadable(t *testing.T) {
	for _, tc := range []struct{ sent, want string }{
		{"40", "40"}, {"0", "0"}, {"soon", ""}, {"-5", ""}, {strings.Repeat("9", 40), ""},
	} {
		t.Run(tc.sent, func(t *testing.T) {
			a := newUpstream(t).on("k1", limited("Retry-After", tc.sent))
			s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+quick+"}")
			got := s.post("/v1/chat/completions", chat("m")).want(429)
			if after := got.header.Get("Retry-After"); after != tc.want {
				t.Errorf("%q, want %q", after, tc.want)
			}
		})
	}
}
