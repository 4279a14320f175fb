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
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// endless answers with a status and a piece that repeats until we hang up; it counts the bytes that it got rid of.
func endless(status int, kind, piece string, sent *atomic.Int64, begin ...string) reply {
	return reply{do: func(w http.ResponseWriter, r *http.Request, _ *call) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		for _, b := range begin {
			io.WriteString(w, b)
		}
		for r.Context().Err() == nil {
			n, err := io.WriteString(w, piece)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}}
}

// peak runs f and returns by how much the heap in use grew at most.
func peak(f func()) uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, most := m.HeapInuse, uint64(0)
	ctx, stop := context.WithCancel(context.Background())
	var sampling sync.WaitGroup
	sampling.Go(func() {
		repeat(ctx, 5*time.Millisecond, func() bool {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			if m.HeapInuse > before {
				most = max(most, m.HeapInuse-before)
			}
			return false
		})
	})
	f()
	stop()
	sampling.Wait()
	return most
}

const mega = 1 << 20

// TestEndlessAnswers: whatever does not end is cut off, not collected, and the caller gets a clear answer.
func TestEndlessAnswers(t *testing.T) {
	f := &families[0]
	filler := strings.Repeat("x", 64<<10)
	for _, tc := range []struct {
		name   string
		script func(*atomic.Int64) reply
		status int    // of the answer; 0: any failure
		body   string // part of it
		memory uint64
	}{
		{"an error body", func(n *atomic.Int64) reply { return endless(500, "application/json", filler, n) }, 200, "from-k2", 8 * mega},
		{"a 400's body", func(n *atomic.Int64) reply {
			return endless(400, "application/json", filler, n, `{"error":{"message":"`)
		}, 400, "error", 8 * mega},
		{"a 429's body", func(n *atomic.Int64) reply { return endless(429, "text/plain", filler, n) }, 200, "from-k2", 8 * mega},
		{"a header", func(n *atomic.Int64) reply {
			return reply{do: func(w http.ResponseWriter, r *http.Request, _ *call) {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Long: ")
				for {
					written, err := io.WriteString(conn, filler)
					n.Add(int64(written))
					if err != nil {
						return
					}
				}
			}}
		}, 200, "from-k2", 64 * mega}, // net/http reads 10 MB of header
		{"comments before content", func(n *atomic.Int64) reply { return endless(200, "text/event-stream", ": "+filler[:1000]+"\n\n", n) }, -1, "", 24 * mega},
		{"an event before content", func(n *atomic.Int64) reply {
			return endless(200, "text/event-stream", filler, n, `data: {"choices":[{"delta":{"content":"`)
		}, -1, "", 48 * mega},
		{"an event after content", func(n *atomic.Int64) reply {
			return endless(200, "text/event-stream", filler, n, f.begin+f.text("one"), `data: {"choices":[{"delta":{"content":"`)
		}, -1, "", 48 * mega},
		{"a stream without a line end", func(n *atomic.Int64) reply { return endless(200, "text/event-stream", filler, n) }, -1, "", 48 * mega},
		{"a plain answer", func(n *atomic.Int64) reply {
			return endless(200, "application/json", filler, n, `{"choices":[{"message":{"content":"`)
		}, -1, "", 8 * mega},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var sent atomic.Int64
			a := newUpstream(t).on("k1", tc.script(&sent))
			s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+quick+"timeouts {\nfirst_token 2s\n}\n}")
			grown := peak(func() {
				if tc.status >= 0 {
					s.post(f.path, f.request).want(tc.status, tc.body)
					return
				}
				// It goes on to the caller, who has enough at some time.
				res, err := s.client.Do(s.request(http.MethodPost, f.path, strings.NewReader(f.request)))
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := io.CopyN(io.Discard, res.Body, 60*mega)
				res.Body.Close()
				if res.StatusCode != 200 || n < 60*mega {
					t.Errorf("%d and %d bytes", res.StatusCode, n)
				}
			})
			if grown > tc.memory {
				t.Errorf("the heap grew by %d MiB of %d MiB", grown/mega, tc.memory/mega)
			}
			<-a.asked("k1")[0].ended // we hung up
			if tc.status >= 0 && sent.Load() > 32*mega {
				t.Errorf("read %d MiB", sent.Load()/mega)
			}
			eventually(t, "nothing is in flight", func() bool { return s.state("default.providers.default.keys.k1.in_flight") == "0" })
		})
	}
}

// TestLargeBodies: 50 MB pass through a limit of 1 MiB without being held.
func TestLargeBodies(t *testing.T) {
	a := newUpstream(t).on("k1", unread(reply{do: func(w http.ResponseWriter, r *http.Request, c *call) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, families[0].whole, fmt.Sprint(n))
	}}))
	s := serve(t, pair(a, "limits {\nbody 1MiB\n}"))
	const size = 50_000_000
	for name, r := range map[string]func() io.Reader{
		"nonsense": func() io.Reader { return io.LimitReader(repeating("\xff\x00{\"a\":["), size) },
		"JSON": func() io.Reader {
			return io.LimitReader(io.MultiReader(strings.NewReader(`{"model":"m","x":"`), repeating("long ")), size)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got *received
			grown := peak(func() { got = s.do(s.client, s.request(http.MethodPost, "/v1/chat/completions", r())) })
			got.want(200, fmt.Sprint(size))
			if grown > 16*mega {
				t.Errorf("the heap grew by %d MiB", grown/mega)
			}
		})
	}
}

// repeating repeats a text without end.
type repeating string

func (r repeating) Read(p []byte) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], r)
	}
	return n, nil
}

// TestMalformedAnswers: broken answers of a good status are failures of the upstream, whatever the bytes.
func TestMalformedAnswers(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON":         "\x00\xff\xfe\x80garbage",
		"half of it":      `{"choices":[{"message":{"content":"hal`,
		"deep":            strings.Repeat(`{"choices":[`, 20_000),
		"a number":        "42",
		"another shape":   `{"hello":"world"}`,
		"only white":      " \n\t ",
		"a wrong content": `{"choices":"none"}`,
	} {
		t.Run(name, func(t *testing.T) {
			a := newUpstream(t).on("k1", says(200, body))
			s := serve(t, pair(a, quick))
			s.post("/v1/chat/completions", chat("m")).want(200, "from-k2")
			a.wantOrder("k1 k2")
		})
	}
	for name, raw := range map[string]string{
		"no HTTP":               "hello\r\n\r\n",
		"a broken status":       "HTTP/1.1 2xx OK\r\n\r\n",
		"a broken header":       "HTTP/1.1 200 OK\r\n\x00bad\r\n\r\n",
		"broken chunks":         "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
		"two lengths":           "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"informational forever": strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 10),
	} {
		t.Run(name, func(t *testing.T) {
			a := newUpstream(t).on("k1", reply{do: func(w http.ResponseWriter, _ *http.Request, _ *call) {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(conn, raw)
				conn.Close()
			}})
			s := serve(t, pair(a, quick))
			s.post("/v1/chat/completions", chat("m")).want(200, "from-k2")
			a.wantOrder("k1 k2")
		})
	}
}

// TestManyStreamsLeaveNothing: goroutines return to where they were after a storm in which half of the callers leave.
func TestManyStreamsLeaveNothing(t *testing.T) {
	f := &families[0]
	a := newUpstream(t).on("k1", events(f.begin, f.text("one"), f.text("two"), f.end))
	s := serve(t, pair(a))
	s.post(f.path, f.request).want(200)
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			client := []*http.Client{s.client, s.two}[i%2]
			res, err := client.Do(s.request(http.MethodPost, f.path, strings.NewReader(f.request)))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if i%4 > 1 {
				return // and leave
			}
			io.Copy(io.Discard, res.Body)
		})
	}
	wg.Wait()
	eventually(t, "nothing is in flight", func() bool { return s.state("default.providers.default.keys.k1.in_flight") == "0" })
	s.reload("respond ok") // lets go of the upstream connections
	eventually(t, "goroutines are as few as before", func() bool { return runtime.NumGoroutine() <= before+10 })
	s.reload(pair(a))
	s.wantState("default.keys.k1.totals.failures", "0")
}
