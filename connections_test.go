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
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// secondOfEach is an upstream that closes each connection when its second request has come, without an answer. It
// counts the requests that it has read.
func secondOfEach(t *testing.T, answer string) (url string, requests *atomic.Int32) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	requests = new(atomic.Int32)
	var seen sync.Map
	server := httptest.Server{Listener: l, Config: &http.Server{ReadHeaderTimeout: 0, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		requests.Add(1)
		conn := r.Context().Value(connKey{}).(net.Conn)
		if _, second := seen.LoadOrStore(conn, true); second {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, answer)
	}), ConnContext: withConn}}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, requests
}

// TestStaleConnections: a kept connection that dies before the first byte of an answer is tried once more on a new
// one, if the work may be sent again; else it is not, by nobody.
func TestStaleConnections(t *testing.T) {
	chatAnswer := fmt.Sprintf(families[0].whole, "hi")
	for _, tc := range []struct {
		name, method, path, body string
		headers                  []string
		second                   int // status of the second call
		requests                 int32
	}{
		{"chat", "POST", "/v1/chat/completions", chat("m"), nil, 200, 3},
		{"a list", "GET", "/v1/models", "", nil, 200, 3},
		{"an image", "POST", "/v1/images/generations", `{"prompt":"x"}`, nil, 502, 2},
		{"an image with an idempotency key", "POST", "/v1/images/generations", `{"prompt":"x"}`, []string{"Idempotency-Key", "1"}, 502, 2},
		{"a batch", "POST", "/v1/batches", `{}`, []string{"Idempotency-Key", "1"}, 502, 2},
		{"a call without a body", "POST", "/v1/batches/b/cancel", "", []string{"Idempotency-Key", "1"}, 502, 2},
		{"a background response", "POST", "/v1/responses", `{"model":"m","background":true}`, []string{"X-Idempotency-Key", "1"}, 502, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer := chatAnswer
			if strings.Contains(tc.path, "responses") {
				answer = `{"id":"r","object":"response","status":"queued","output":[]}`
			}
			url, requests := secondOfEach(t, answer)
			s := serve(t, "llm_failover "+url+" {\n"+keysOf("k1")+quick+"}")
			send := func() *received {
				var body io.Reader
				if tc.body != "" {
					body = strings.NewReader(tc.body)
				}
				return s.do(s.client, s.request(tc.method, tc.path, body, tc.headers...))
			}
			send().want(200)
			send().want(tc.second)
			if n := requests.Load(); n != tc.requests {
				t.Errorf("%d requests, want %d", n, tc.requests)
			}
			if tc.second == 200 {
				s.wantState("default.keys.k1.totals.failures", "0", "default.keys.k1.circuit.failures", "0")
			}
		})
	}
}

// TestUnknownOutcome: paid work that was delivered and then lost is not sent again; what was refused goes elsewhere.
func TestUnknownOutcome(t *testing.T) {
	for _, tc := range []struct {
		name, path, body string
		script           reply
		order            string
	}{
		{"chat, lost", "/v1/chat/completions", chat("m"), just(rst{}), "k1 k2"},
		{"image, lost", "/v1/images/generations", `{"prompt":"x"}`, just(rst{}), "k1"},
		{"image, silence", "/v1/images/generations", `{"prompt":"x"}`, just(hang{}), "k1"},
		{"image, cut short", "/v1/images/generations", `{"prompt":"x"}`, says(200, `{"data":[`, "Content-Length", "100"), "k1"},
		{"image, an edge's 502", "/v1/images/generations", `{"prompt":"x"}`, fails(502, "bad gateway"), "k1"},
		{"image, an edge's 504", "/v1/images/generations", `{"prompt":"x"}`, fails(504, "timeout"), "k1"},
		{"image, limited", "/v1/images/generations", `{"prompt":"x"}`, limited("Retry-After", "30"), "k1 k2"},
		{"image, refused", "/v1/images/generations", `{"prompt":"x"}`, fails(401, "Incorrect API key provided"), "k1 k2"},
		{"image, 503", "/v1/images/generations", `{"prompt":"x"}`, fails(503, "try again"), "k1 k2"},
		{"batch, lost", "/v1/batches", `{}`, just(rst{}), "k1"},
		{"file, lost", "/v1/files", `x`, just(rst{}), "k1"},
		{"background response, lost", "/v1/responses", `{"model":"m","background":true}`, just(rst{}), "k1"},
		{"response, lost", "/v1/responses", `{"model":"m","background":false}`, just(rst{}), "k1 k2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newUpstream(t).on("k1", tc.script)
			s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+short+"}")
			got := s.post(tc.path, tc.body)
			if tc.order == "k1" && got.status < 500 {
				t.Errorf("%d %s", got.status, got.body)
			}
			a.wantOrder(tc.order)
		})
	}
}

// TestConnectionsLiveOn: a failed answer is read to its end, so that its connection serves again.
func TestConnectionsLiveOn(t *testing.T) {
	conns := make(chan net.Conn, 100)
	a := newUpstream(t, func(u *httptest.Server) {
		u.Config.ConnState = func(c net.Conn, state http.ConnState) {
			if state == http.StateNew {
				conns <- c
			}
		}
	}).on("k1", fails(500, strings.Repeat("long ", 20_000))).on("k2", ok)
	s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+quick+"circuit {\nthreshold 1000\n}\n}")
	for range 10 {
		s.post("/v1/chat/completions", chat("m")).want(200, "from-k2")
	}
	if n := len(conns); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestTLSAndHTTP2Upstreams(t *testing.T) {
	f := &families[0]
	secure := func(t *testing.T) *upstream { return newUpstream(t, func(u *httptest.Server) { u.EnableHTTP2 = true }) }
	const trusting = "transport http {\ntls_insecure_skip_verify\n}"
	abort := reply{do: func(http.ResponseWriter, *http.Request, *call) { panic(http.ErrAbortHandler) }} // RST_STREAM
	for name, tc := range map[string]struct {
		script reply
		order  string
	}{
		"healthy":               {ok, "k1"},
		"limited":               {limited("Retry-After", "30"), "k1 k2"},
		"reset, no answer":      {abort, "k1 k2"},
		"reset before content":  {events(f.begin, cut{}), "k1 k2"},
		"silence":               {just(hang{}), "k1 k2"},
		"early 500, large body": {unread(fails(500, "oops")), "k1 k2"},
	} {
		t.Run(name, func(t *testing.T) {
			a := secure(t).on("k1", tc.script)
			s := serve(t, pair(a, quick, trusting, "timeouts {\nheaders 3s\n}"))
			want := f.begin + f.text("from-"+tc.order[len(tc.order)-2:]) + f.end
			if got := s.post(f.path, strings.Replace(f.request, `"hi"`, `"`+strings.Repeat("hi", 1<<20)+`"`, 1)).want(200); got.body != want {
				t.Errorf("%.300q", got.body)
			}
			a.wantOrder(tc.order)
			for _, c := range a.asked("") {
				if c.proto != "HTTP/2.0" {
					t.Error(c.proto)
				}
			}
			s.wantState("default.keys.k1.in_flight", "0")
		})
	}
	t.Run("reset after content", func(t *testing.T) {
		a := secure(t).on("k1", events(f.begin, f.text("one"), cut{}))
		s := serve(t, pair(a, quick, trusting))
		for _, client := range []*http.Client{s.client, s.two} {
			s.do(client, s.request(http.MethodPost, f.path, strings.NewReader(f.request))).wantAborted().lacks(f.marker, "from-k2")
		}
	})
	t.Run("a connection told to go away", func(t *testing.T) {
		a := secure(t)
		s := serve(t, pair(a, quick, trusting))
		for range 3 {
			s.post(f.path, f.request).want(200, "from-k1")
			a.CloseClientConnections()
		}
		s.wantState("default.keys.k1.totals.failures", "0")
	})
	t.Run("a certificate that nobody trusts", func(t *testing.T) {
		a, b := secure(t), newUpstream(t)
		s := serve(t, two(a, b, quick))
		s.post(f.path, f.request).want(200, "from-b1")
		s.wantState("A.halt.reason", "provider_unavailable")
		a.wantOrder("")
	})
}

// TestEncodedAnswers: what an upstream encodes although nobody asked for it is read all the same.
func TestEncodedAnswers(t *testing.T) {
	f := &families[0]
	plain := fmt.Sprintf(f.whole, "hi")
	events := f.begin + f.text("one") + f.end
	encoders := map[string]func(io.Writer) io.WriteCloser{
		"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
		"zstd": func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w)
			if err != nil {
				t.Error(err)
			}
			return z
		},
	}
	for name, encode := range encoders {
		encoded := func(body string) string {
			var b bytes.Buffer
			w := encode(&b)
			io.WriteString(w, body)
			w.Close()
			return b.String()
		}
		t.Run(name, func(t *testing.T) {
			a := newUpstream(t)
			s := serve(t, pair(a, quick, "circuit {\nthreshold 100\n}"))
			for _, tc := range []struct {
				script reply
				body   string
				status int
				served string
			}{
				{says(200, encoded(plain), "Content-Encoding", name), chat("m"), 200, plain},
				{says(200, encoded(events), "Content-Encoding", name, "Content-Type", "text/event-stream"), f.request, 200, events},
				{says(200, encoded(`{"error":{"message":"The server had an error"}}`), "Content-Encoding", name), chat("m"), 200, "from-k2"},
				{says(500, encoded(`{"error":{"message":"oops"}}`), "Content-Encoding", name), chat("m"), 200, "from-k2"},
				{says(400, encoded(`{"error":{"message":"wrong"}}`), "Content-Encoding", name), chat("m"), 400, `{"error":{"message":"wrong"}}`},
				{says(200, "this is not encoded", "Content-Encoding", name), chat("m"), 200, "from-k2"},
				{says(200, encoded(plain)[:20], "Content-Encoding", name), chat("m"), 200, "from-k2"},
				{says(429, "neither is this", "Content-Encoding", name, "Retry-After", "30"), chat("m"), 200, "from-k2"},
			} {
				a.on("k1", tc.script)
				got := s.post(f.path, tc.body).want(tc.status, tc.served).wantHeader("Content-Encoding", "")
				if tc.served != "from-k2" && got.body != tc.served {
					t.Errorf("%q, want %q", got.body, tc.served)
				}
				s.ask(http.MethodPost, "/llm_failover/default/reset")
			}
		})
	}
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}
