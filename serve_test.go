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
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// quick makes the waits short, so that nothing has to be slept for.
const quick = `retry {
	same_key 10ms 20ms 40ms
	backoff 5ms 20ms
}
`

// short is quick with each limit for silence short, too.
const short = quick + `timeouts {
	headers 500ms
	first_token 800ms
	idle 500ms
}
`

// pair is a pool of one provider with two keys of one account.
func pair(u *upstream, more ...string) string {
	return fmt.Sprintf("llm_failover %s {\n%s account team\n%s\n}", u.URL, keysOf("k1", "k2"), strings.Join(more, "\n"))
}

// two is a pool of two providers, A with k1 and k2 and B with b1 and b2.
func two(a, b *upstream, more ...string) string {
	return fmt.Sprintf("llm_failover {\nprovider A %s {\n%s}\nprovider B %s {\n%s}\n%s\n}", a.URL, keysOf("k1", "k2"), b.URL, keysOf("b1", "b2"), strings.Join(more, "\n"))
}

func TestHealthyKeyIsAskedOnce(t *testing.T) {
	for i := range families {
		f := &families[i]
		t.Run(f.name, func(t *testing.T) {
			a := newUpstream(t)
			s := serve(t, pair(a))
			path := strings.Replace(f.path, "streamGenerateContent?alt=sse", "generateContent", 1)
			s.post(path, strings.Replace(f.request, streaming, "", 1)).want(200).wantHeader("Content-Type", "application/json", "X-Should-Retry", "")
			want := f.begin + f.text("from-k1") + f.end
			if got := s.post(f.path, f.request).want(200).wantHeader("Content-Type", "text/event-stream"); got.body != want {
				t.Errorf("got %q, want %q", got.body, want)
			}
			a.wantOrder("k1 k1")
			if lines := sink.ours(""); len(lines) > 0 {
				t.Errorf("a success is told: %v", lines)
			}
			s.wantState("default.keys.k1.totals.attempts", "2", "default.keys.k1.totals.failures", "0", "default.keys.k1.in_flight", "0", "default.keys.k1.last_error", "")
		})
	}
}

// TestWhatEachFailureCalls pins what one failure of the first key leads to: who is asked, what the caller gets, and
// what is remembered.
func TestWhatEachFailureCalls(t *testing.T) {
	for _, tc := range []struct {
		name   string
		first  []reply // k1's; the last one repeats
		order  string
		status int
		body   string
		state  []string // below default.keys.k1 (a leading / is below default.accounts)
	}{
		{"429, keys of one account: same-key waits, then the other", []reply{limited()}, "k1 k1 k1 k1 k2", 200, "from-k2", []string{"circuit.failures", "1", "last_error.class", "rate_limit"}},
		{"429 once", []reply{limited(), ok}, "k1 k1", 200, "from-k1", []string{"circuit.failures", "0", "status", "available"}},
		{"429 with a hint beyond max_wait", []reply{limited("Retry-After", "30")}, "k1 k2", 200, "from-k2", []string{"status", "cooling", "cooldown.reason", "rate_limit"}},
		{"429 with a hint in milliseconds", []reply{limited("Retry-After-Ms", "20"), ok}, "k1 k1", 200, "from-k1", nil},
		{"500", []reply{fails(500, "oops")}, "k1 k2", 200, "from-k2", []string{"circuit.failures", "1", "last_error.status", "500"}},
		{"503", []reply{fails(503, "")}, "k1 k2", 200, "from-k2", []string{"circuit.failures", "1"}},
		{"504", []reply{fails(504, "")}, "k1 k2", 200, "from-k2", []string{"last_error.class", "timeout"}},
		{"408", []reply{fails(408, "")}, "k1 k2", 200, "from-k2", []string{"last_error.class", "timeout"}},
		{"529, no other provider: one short wait, then the other key", []reply{fails(529, "Overloaded")}, "k1 k1 k2", 200, "from-k2", []string{"circuit.failures", "0", "last_error.class", "overloaded"}},
		{"401", []reply{fails(401, "Incorrect API key provided")}, "k1 k2", 200, "from-k2", []string{"status", "rejected", "circuit.failures", "0"}},
		{"403", []reply{fails(403, "Forbidden")}, "k1 k2", 200, "from-k2", []string{"status", "rejected"}},
		{"402, the only account", []reply{fails(402, "Insufficient Balance")}, "k1", 402, "Insufficient", []string{"status", "available", "last_error.class", "billing_error", "/team.halt.strikes", "1"}},
		{"400", []reply{fails(400, "messages: field required")}, "k1", 400, "field required", []string{"last_error", "", "totals.failures", "0"}},
		{"413", []reply{fails(413, "Request too large")}, "k1", 413, "too large", []string{"last_error", ""}},
		{"422", []reply{fails(422, "bad value")}, "k1", 422, "bad value", []string{"last_error", ""}},
		{"404 about a model: another key may have it", []reply{says(404, `{"error":{"message":"The model m does not exist","type":"invalid_request_error","code":"model_not_found"}}`)}, "k1 k2", 200, "from-k2", []string{"models.m.reason", "model_unavailable"}},
		{"404 about nothing known", []reply{fails(404, "no such batch")}, "k1", 404, "no such batch", []string{"last_error", ""}},
		{"418", []reply{fails(418, "teapot")}, "k1", 418, "teapot", []string{"last_error", ""}},
		{"302", []reply{says(302, "", "Location", "http://127.0.0.1:1/")}, "k1 k2", 200, "from-k2", []string{"last_error.class", "server_error"}},
		{"reset", []reply{just(rst{})}, "k1 k2", 200, "from-k2", []string{"last_error.class", "server_error"}},
		{"no answer", []reply{just(hang{})}, "k1 k2", 200, "from-k2", []string{"last_error.class", "timeout"}},
		{"200 with an error", []reply{says(200, `{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}`), ok}, "k1 k1", 200, "from-k1", nil},
		{"200 with HTML", []reply{says(200, "<html><body>hi</body></html>", "Content-Type", "text/html")}, "k1 k2", 200, "from-k2", []string{"last_error.class", "server_error"}},
		{"200 cut short", []reply{says(200, `{"id":"c","choices":[{"message":`, "Content-Length", "5000")}, "k1 k2", 200, "from-k2", []string{"last_error.class", "server_error"}},
		{"200 that stalls", []reply{stream(map[string]string{"Content-Type": "application/json"}, `{"id":"c"`, hang{})}, "k1 k2", 200, "from-k2", []string{"last_error.class", "timeout"}},
		{"200 with nothing", []reply{says(200, "")}, "k1 k2", 200, "from-k2", []string{"last_error", "", "circuit.failures", "0"}},
		{"200 with an empty answer", []reply{says(200, `{"id":"c","choices":[{"message":{"role":"assistant","content":""},"finish_reason":"stop"}]}`)}, "k1 k2", 200, "from-k2", []string{"last_error", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newUpstream(t).on("k1", tc.first...)
			s := serve(t, pair(a, short))
			got := s.post("/v1/chat/completions", chat("m")).want(tc.status, tc.body)
			if tc.status != 200 {
				got.wantHeader("X-Should-Retry", "false")
			}
			a.wantOrder(tc.order)
			for i := 0; i < len(tc.state); i += 2 {
				path, account := strings.CutPrefix(tc.state[i], "/")
				if account {
					path = "default.accounts." + path
				} else {
					path = "default.keys.k1." + path
				}
				s.wantState(path, tc.state[i+1])
			}
			s.wantState("default.keys.k1.in_flight", "0", "default.keys.k2.in_flight", "0")
		})
	}
}

func TestMovesOnWithoutWaiting(t *testing.T) {
	t.Run("a limited key to another account", func(t *testing.T) {
		a := newUpstream(t).on("k1", limited())
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+"}") // default waits: 1s and more
		if got := s.post("/v1/chat/completions", chat("m")).want(200, "from-k2"); got.took > 900*time.Millisecond {
			t.Error("took", got.took)
		}
		a.wantOrder("k1 k2")
	})
	t.Run("an overloaded provider to another", func(t *testing.T) {
		a, b := newUpstream(t).on("k1", fails(529, "Overloaded")), newUpstream(t)
		s := serve(t, two(a, b, quick))
		s.post("/v1/chat/completions", chat("m")).want(200, "from-b1")
		s.post("/v1/chat/completions", chat("m")).want(200, "from-b1")
		a.wantOrder("k1")
		s.wantState("A.status", "halted", "A.halt.reason", "overloaded")
	})
	t.Run("a silent provider to another", func(t *testing.T) {
		a, b := newUpstream(t).on("k1", just(hang{})), newUpstream(t)
		s := serve(t, two(a, b, short))
		s.post("/v1/chat/completions", chat("m")).want(200, "from-b1")
		a.wantOrder("k1")
		s.wantState("A.keys.k1.circuit.failures", "1", "A.status", "available")
	})
	t.Run("an unreachable provider to another", func(t *testing.T) {
		a, b := newUpstream(t), newUpstream(t)
		a.Close()
		s := serve(t, two(a, b, quick))
		s.post("/v1/chat/completions", chat("m")).want(200, "from-b1")
		s.wantState("A.status", "halted", "A.halt.reason", "provider_unavailable")
	})
	t.Run("a halted account to another account", func(t *testing.T) {
		a := newUpstream(t).on("k1", fails(402, "Insufficient Balance"))
		s := serve(t, "llm_failover "+a.URL+` {
			keys {
				k1 {env.SECRET_K1} {
					account poor
				}
				k2 {env.SECRET_K2} {
					account poor
				}
				k3 {env.SECRET_K3}
			}
		}`)
		s.post("/v1/chat/completions", chat("m")).want(200, "from-k3")
		s.post("/v1/chat/completions", chat("m")).want(200, "from-k3")
		a.wantOrder("k1 k3 k3")
	})
}

func TestLoneFaultyKeyIsAskedOnceMore(t *testing.T) {
	a := newUpstream(t).on("k1", fails(500, "oops"), ok)
	s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+quick+"}")
	s.post("/v1/chat/completions", chat("m")).want(200, "from-k1")
	a.wantOrder("k1 k1")
}

func TestBadRequestIsAskedOnceEvenIfListed(t *testing.T) {
	a := newUpstream(t).on("k1", fails(400, "no"))
	s := serve(t, pair(a, `retry {
		on bad_request rate_limit
	}`))
	s.post("/v1/chat/completions", chat("m")).want(400, "no")
	a.wantOrder("k1")
}

// TestBadRequestInAStream: what no retry can cure becomes an error with a status, also out of a 200 stream.
func TestBadRequestInAStream(t *testing.T) {
	for i := range families {
		f := &families[i]
		t.Run(f.name, func(t *testing.T) {
			refused := map[string]string{
				"chat":      `data: {"error":{"message":"messages: wrong","type":"invalid_request_error","code":null}}` + "\n\n",
				"responses": "event: error\n" + `data: {"type":"error","code":"invalid_prompt","message":"messages: wrong"}` + "\n\n",
				"messages":  "event: error\n" + `data: {"type":"error","error":{"type":"invalid_request_error","message":"messages: wrong"}}` + "\n\n",
				"gemini":    `data: {"error":{"code":400,"message":"messages: wrong","status":"INVALID_ARGUMENT"}}` + "\n\n",
			}[f.name]
			a := newUpstream(t).on("k1", events(f.begin, refused))
			s := serve(t, pair(a, quick))
			s.post(f.path, f.request).want(400, "messages: wrong").wantHeader("Content-Type", "application/json", "X-Should-Retry", "false")
			a.wantOrder("k1")
		})
	}
}

func TestEmptyAndFalseStreams(t *testing.T) {
	for i := range families {
		f := &families[i]
		for name, script := range map[string]reply{
			"nothing":       events(),
			"comments only": events(": ping\n\n", ": ping\n\n"),
			"no content":    events(f.begin, f.end[strings.LastIndex(strings.TrimSpace(f.end), "\n\n")+1:]),
			"cut before":    events(f.begin, cut{}),
			"error at once": events(f.failed),
			"error before":  events(f.begin, f.failed),
			"JSON error":    says(200, `{"error":{"message":"The server had an error","type":"server_error"}}`),
			"silence":       events(f.begin, hang{}),
			"reset":         events(f.begin, rst{}),
		} {
			if name == "no content" && f.name == "gemini" || name == "no content" && f.name == "responses" {
				continue // their endings carry content here
			}
			t.Run(f.name+"/"+name, func(t *testing.T) {
				a := newUpstream(t).on("k1", script)
				s := serve(t, pair(a, short))
				want := f.begin + f.text("from-k2") + f.end
				if got := s.post(f.path, f.request).want(200); got.body != want {
					t.Errorf("got %q, want %q", got.body, want)
				}
				a.wantOrder("k1 k2")
			})
		}
	}
}

func TestCircuitAndHaltsRefuseLocally(t *testing.T) {
	t.Run("open circuit", func(t *testing.T) {
		a := newUpstream(t).on("k1", fails(500, "oops"))
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+quick+"}")
		for range 3 {
			s.post("/v1/chat/completions", chat("m")).want(500, "oops")
		}
		calls := len(a.asked(""))
		got := s.post("/v1/chat/completions", chat("m")).want(503).wantJSON("error.code", "all_open").wantHeader("X-Should-Retry", "")
		if n := len(a.asked("")); n != calls {
			t.Errorf("%d calls after %d", n, calls)
		}
		if after := got.header.Get("Retry-After"); after != "30" && after != "29" {
			t.Error("Retry-After", after)
		}
		s.wantState("default.keys.k1.status", "open", "default.keys.k1.circuit.failures", "3")
	})
	t.Run("half open: one probe", func(t *testing.T) {
		free := make(chan struct{})
		a := newUpstream(t).on("k1", fails(500, "oops"))
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+quick+`circuit {
			threshold 1
			cooldown 50ms
		}
		}`)
		s.post("/v1/chat/completions", chat("m")).want(500)
		a.forget()
		a.on("k1", reply{do: func(w http.ResponseWriter, r *http.Request, c *call) { <-free; ok.do(w, r, c) }})
		eventually(t, "half open", func() bool { return s.state("default.providers.default.keys.k1.status") == "half_open" })
		done := make(chan *received)
		go func() { done <- s.post("/v1/chat/completions", chat("m")) }()
		eventually(t, "the probe is under way", func() bool { return s.state("default.providers.default.keys.k1.in_flight") == "1" })
		for range 5 {
			s.post("/v1/chat/completions", chat("m")).want(503).wantJSON("error.code", "all_open")
		}
		close(free)
		(<-done).want(200)
		a.wantOrder("k1")
		s.wantState("default.keys.k1.status", "available", "default.keys.k1.circuit.failures", "0")
	})
	t.Run("every key limited", func(t *testing.T) {
		a := newUpstream(t).on("k1", limited()).on("k2", limited())
		s := serve(t, pair(a, quick))
		s.post("/v1/chat/completions", chat("m")).want(429, "Rate limit reached").wantHeader("X-Should-Retry", "false")
		a.wantOrder("k1 k1 k1 k1 k2 k2 k2 k2")
		s.post("/v1/chat/completions", chat("m")).want(503).wantJSON("error.code", "all_halted")
		s.wantState("default.status", "halted", "default.halt.reason", "rate_limit")
	})
	t.Run("every key cooling", func(t *testing.T) {
		a := newUpstream(t).on("k1", limited("Retry-After", "20")).on("k2", limited("Retry-After", "40"))
		s := serve(t, pair(a, quick))
		s.post("/v1/chat/completions", chat("m")).want(429, "Rate limit reached").wantHeader("Retry-After", "40")
		got := s.post("/v1/chat/completions", chat("m")).want(429).wantJSON("error.code", "all_cooling", "error.type", "rate_limit_error")
		if after := got.header.Get("Retry-After"); after != "20" && after != "19" {
			t.Error("Retry-After", after)
		}
		a.wantOrder("k1 k2")
	})
	t.Run("a wait for a key that is back soon", func(t *testing.T) {
		a := newUpstream(t).on("k1", limited("Retry-After-Ms", "250"), ok)
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+"retry {\n same_key_on model_unavailable\n}\n}")
		s.post("/v1/chat/completions", chat("m")).want(429)
		if got := s.post("/v1/chat/completions", chat("m")).want(200, "from-k1"); got.took < 100*time.Millisecond {
			t.Error("took", got.took)
		}
	})
}

func TestRejectedKeysAreNoneOfTheCallersBusiness(t *testing.T) {
	a := newUpstream(t).on("k1", fails(401, "Incorrect API key provided")).on("k2", fails(401, "Incorrect API key provided"))
	s := serve(t, pair(a, quick))
	got := s.post("/v1/chat/completions", chat("m")).want(502).wantJSON("error.code", "upstream_credentials", "error.attempts.#", "2",
		"error.attempts.0.class", "auth_error", "error.attempts.1.key", "k2", "error.attempts.1.status", "401")
	got.lacks("Incorrect").wantHeader("X-Should-Retry", "false")
	s.post("/v1/chat/completions", chat("m")).want(502).wantJSON("error.code", "upstream_credentials", "error.attempts", "")
	a.wantOrder("k1 k2")
}
