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
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// bigChat is a chat request of about n bytes, in which mark stands all over.
func bigChat(mark string, n int) string {
	return chat("m", `,"user":"`+strings.Repeat(mark, n/len(mark))+`"`)
}

// chunked hides a reader's length.
type chunked struct{ io.Reader }

// wantSame checks that each call got the same bytes, with a known length.
func (u *upstream) wantSame(want []byte, calls int) {
	u.t.Helper()
	asked := u.asked("")
	if len(asked) != calls {
		u.t.Errorf("%d calls, want %d", len(asked), calls)
	}
	for i, c := range asked {
		if !bytes.Equal(c.body, want) {
			u.t.Errorf("call %d got %d bytes, not the caller's %d: %.200q", i, len(c.body), len(want), c.body)
		}
		if c.length != int64(len(want)) {
			u.t.Errorf("call %d has the length %d, want %d", i, c.length, len(want))
		}
	}
}

func TestBodiesArriveAsSent(t *testing.T) {
	binary := make([]byte, 300<<10)
	rand.Read(binary)
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, _ := w.CreateFormFile("file", "a.wav")
	part.Write(binary)
	w.WriteField("model", "whisper")
	w.Close()
	for name, tc := range map[string]struct {
		path, kind string
		body       []byte
	}{
		"chat":            {"/v1/chat/completions", "application/json", []byte(chat("m"))},
		"odd JSON":        {"/v1/chat/completions", "application/json", []byte("\n {\"a\" :1.0e0,\"model\":\"m\",\t\"model\" : \"m2\",\"x\":\"\\u0041\\/\",\"n\":12345678901234567890} \n")},
		"broken JSON":     {"/v1/chat/completions", "application/json", []byte(`{"model":"m","messages":[`)},
		"no JSON":         {"/v1/chat/completions", "application/json", []byte("\x00\x01\xff\xfe")},
		"invalid UTF-8":   {"/v1/chat/completions", "application/json", []byte("{\"model\":\"m\xff\xfe\",\"x\":\"\xc3\x28\"}")},
		"deep JSON":       {"/v1/chat/completions", "application/json", []byte(strings.Repeat(`{"a":[`, 50_000))},
		"a JSON array":    {"/v1/chat/completions", "application/json", []byte(`["model","m"]`)},
		"multipart":       {"/v1/audio/transcriptions", w.FormDataContentType(), form.Bytes()},
		"two megabytes":   {"/v1/chat/completions", "application/json", []byte(bigChat("abcdefgh", 2<<20))},
		"4 KiB and a bit": {"/v1/chat/completions", "application/json", []byte(bigChat("abcdefgh", 4100))},
	} {
		t.Run(name, func(t *testing.T) {
			a := newUpstream(t).on("k1", fails(500, "oops")).on("k2", says(200, `{"text":"fine","choices":[{"message":{"content":"fine"}}]}`))
			s := serve(t, pair(a, quick, "circuit {\nthreshold 100\n}"))
			for _, client := range []*http.Client{s.client, s.two} {
				for _, body := range []io.Reader{bytes.NewReader(tc.body), chunked{bytes.NewReader(tc.body)}} {
					a.forget()
					s.do(client, s.request(http.MethodPost, tc.path, body, "Content-Type", tc.kind)).want(200, "fine")
					a.wantSame(tc.body, 2)
					if got := a.asked("k2")[0].header; got.Get("Content-Type") != tc.kind || got.Get("Transfer-Encoding") != "" {
						t.Error(got)
					}
				}
			}
		})
	}
}

func TestBodyOverTheLimitGoesThroughOnce(t *testing.T) {
	a := newUpstream(t)
	s := serve(t, pair(a, quick, "limits {\nbody 64KiB\n}\ncircuit {\nthreshold 100\n}"))
	for _, size := range []int{64<<10 + 1, 1 << 20} {
		body := []byte(bigChat("abcdefgh", size))
		for _, known := range []bool{true, false} {
			a.forget()
			send := func() *received {
				var r io.Reader = bytes.NewReader(body)
				if !known {
					r = chunked{r}
				}
				return s.do(s.client, s.request(http.MethodPost, "/v1/chat/completions", r))
			}
			a.on("k1", fails(500, "oops"))
			send().want(500, "oops").wantHeader("X-Should-Retry", "false")
			a.on("k1", ok)
			send().want(200, "from-k1")
			a.wantOrder("k1 k1")
			for _, c := range a.asked("") {
				if !bytes.Equal(c.body, body) {
					t.Errorf("%d bytes instead of %d", len(c.body), len(body))
				}
			}
		}
	}
	a.forget()
	a.on("k1", fails(500, "oops"))
	s.post("/v1/chat/completions", bigChat("abcdefgh", 60<<10)).want(200, "from-k2")
}

// TestModelNames: another model name changes its own bytes and no other.
func TestModelNames(t *testing.T) {
	for _, tc := range []struct{ name, path, body, sentPath, sentBody string }{
		{"chat", "/v1/chat/completions", `{ "messages": [{"model":"fast"}], "model" : "fast" ,"x":1.0 }`, "", `{ "messages": [{"model":"fast"}], "model" : "vendor/fast-1" ,"x":1.0 }`},
		{"escaped", "/v1/chat/completions", `{"model":"\u0066ast","s":"a\/b"}`, "", `{"model":"vendor/fast-1","s":"a\/b"}`},
		{"an escaped field name", "/v1/chat/completions", `{"\u006dodel":"fast"}`, "", `{"\u006dodel":"vendor/fast-1"}`},
		{"messages", "/v1/messages", `{"model":"fast","max_tokens":9}`, "", `{"model":"vendor/fast-1","max_tokens":9}`},
		{"twice: the last counts", "/v1/chat/completions", `{"model":"other","model":"fast"}`, "", `{"model":"other","model":"vendor/fast-1"}`},
		{"pattern", "/v1/chat/completions", `{"model":"gpt-5"}`, "", `{"model":"gpt-5"}`},
		{"gemini", "/v1beta/models/fast:generateContent?x=1", `{"contents":[],"model":"fast"}`, "/v1beta/models/vendor%2Ffast-1:generateContent?x=1", `{"contents":[],"model":"fast"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newUpstream(t).on("k1", fails(500, "oops"))
			b := newUpstream(t)
			s := serve(t, fmt.Sprintf(`llm_failover {
				provider A %s {
					%s
					models {
						fast vendor/fast-1
						gpt-*
					}
				}
				provider B %s {
					%s
				}
				%s
			}`, a.URL, keysOf("k1"), b.URL, keysOf("b1"), quick))
			s.post(tc.path, tc.body).want(200, "from-b1")
			first, second := a.asked("k1")[0], b.asked("b1")[0]
			if tc.sentPath == "" {
				tc.sentPath = tc.path
			}
			if first.uri != tc.sentPath || string(first.body) != tc.sentBody {
				t.Errorf("A got %s %s\nwant %s %s", first.uri, first.body, tc.sentPath, tc.sentBody)
			}
			if second.uri != tc.path || string(second.body) != tc.body {
				t.Errorf("B got %s %s", second.uri, second.body)
			}
		})
	}
	t.Run("nobody serves it", func(t *testing.T) {
		a := newUpstream(t)
		s := serve(t, pair(a, "models {\nfast\n}"))
		s.post("/v1/chat/completions", chat("slow")).want(404).wantJSON("error.code", "model_not_served")
		a.wantOrder("")
	})
}

func TestBrokenUploadIsNeverSent(t *testing.T) {
	a := newUpstream(t)
	s := serve(t, pair(a))
	for _, framing := range []string{"Content-Length: 1000\r\n\r\n{\"model\":", "Transfer-Encoding: chunked\r\n\r\n9\r\n{\"model\":", "Transfer-Encoding: chunked\r\n\r\nnonsense"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%s", strings.TrimPrefix(s.url, "http://"), framing)
		conn.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, conn)
		conn.Close()
	}
	eventually(t, "all are over", func() bool { return len(sink.those("http.log.access", "handled request")) == 3 })
	a.wantOrder("")
	s.wantState("default.keys.k1.totals.attempts", "0")
	s.post("/v1/chat/completions", chat("m")).want(200)
}

// TestEarlyAnswers: an upstream that answers before it has read the body leaves the transport reading it. The memory
// must not serve another request meanwhile: each call gets its own caller's bytes. (Run it with -race.)
func TestEarlyAnswers(t *testing.T) {
	a := newUpstream(t).on("k1", unread(fails(500, "oops"))).on("k2", unread(limited("Retry-After-Ms", "1")))
	s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2", "k3")+quick+"circuit {\nthreshold 100000\n}\n}")
	var wg sync.WaitGroup
	const callers, calls = 8, 6
	for i := range callers {
		wg.Go(func() {
			for j := range calls {
				mark := fmt.Sprintf("<%d.%d>", i, j)
				body := []byte(bigChat(mark, (1+i%3)<<20))
				ctx, cancel := context.WithCancel(context.Background())
				got := s.do(s.client, s.request(http.MethodPost, "/v1/chat/completions", bytes.NewReader(body), "X-Mark", mark).WithContext(ctx))
				cancel()
				if got.err != nil { // our own server hangs up on nobody
					t.Error(got.err)
				}
			}
		})
	}
	wg.Wait()
	served := 0
	for _, c := range a.asked("k3") {
		mark := c.header.Get("X-Mark")
		rest := bytes.ReplaceAll(c.body, []byte(mark), nil)
		if len(c.body) < 1<<20 || bytes.IndexByte(rest, '<') >= 0 {
			t.Fatalf("%s got another's bytes: %d, %.100q", mark, len(c.body), rest)
		}
		served++
	}
	if served == 0 {
		t.Error("nobody was served")
	}
	s.wantState("default.keys.k1.in_flight", "0", "default.keys.k2.in_flight", "0", "default.keys.k3.in_flight", "0")
}

// TestAnswersDoNotMix: held answers are memory that is used again, and callers hang up in the middle of them.
func TestAnswersDoNotMix(t *testing.T) {
	a := newUpstream(t).on("k1", reply{do: func(w http.ResponseWriter, r *http.Request, c *call) {
		mark := c.header.Get("X-Mark")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, families[0].whole, strings.Repeat(mark, (200<<10)/len(mark)))
	}})
	s := serve(t, pair(a))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 30 {
				mark := fmt.Sprintf("(%d.%d)", i, j)
				ctx, cancel := context.WithCancel(context.Background())
				res, err := s.two.Do(s.request(http.MethodPost, "/v1/chat/completions", strings.NewReader(chat("m")), "X-Mark", mark).WithContext(ctx))
				if err != nil {
					t.Error(err)
					cancel()
					continue
				}
				limit := int64(300 << 10)
				if j%2 == 0 {
					limit = 5000 // and hang up
				}
				b, err := io.ReadAll(io.LimitReader(res.Body, limit))
				cancel()
				res.Body.Close()
				if rest := bytes.ReplaceAll(b[:min(len(b), 4000)], []byte(mark), nil); err != nil || bytes.IndexByte(rest, '(') >= 0 {
					t.Errorf("%v %s got %.200q", err, mark, rest)
				}
			}
		})
	}
	wg.Wait()
}
