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
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// heldLittle is the pool's line that lets larger bodies through once.
const heldLittle = "limits {\nbody 64KiB\n}\n"

// patient leaves busy machines time for large bodies.
const patient = quick + "timeouts {\nheaders 1500ms\n}\n"

// renaming is a pool of two providers, of which A has another name for the model.
func renaming(a, b *upstream, more ...string) string {
	return fmt.Sprintf("llm_failover {\nprovider A %s {\n%smodels {\nwhisper w-large-v3\n}\n}\nprovider B %s {\n%s}\n%s%s}",
		a.URL, keysOf("k1"), b.URL, keysOf("b1"), quick, strings.Join(more, "\n"))
}

func TestFormsAreRead(t *testing.T) {
	a, b := newUpstream(t).on("k1", fails(500, "oops")), newUpstream(t)
	s := serve(t, renaming(a, b))
	form := formOf(fileField+"\x00\x01\r\n--bb", modelField+"whisper", streamField+"false")
	s.post("/v1/audio/transcriptions", form, "Content-Type", `multipart/form-data; boundary="b"`).want(200, "from-b1")
	first, second := a.asked("k1")[0], b.asked("b1")[0]
	if want := strings.Replace(form, "whisper", "w-large-v3", 1); string(first.body) != want || first.length != int64(len(want)) {
		t.Errorf("A got %d %q", first.length, first.body)
	}
	if string(second.body) != form || second.length != int64(len(form)) {
		t.Errorf("B got %d %q", second.length, second.body)
	}
	if got := second.header.Get("Content-Type"); got != `multipart/form-data; boundary="b"` {
		t.Error(got)
	}
}

func TestCompressedBodiesAreLeftAlone(t *testing.T) {
	a, b := newUpstream(t), newUpstream(t)
	s := serve(t, renaming(a, b))
	for _, coding := range []string{"gzip", "zstd", "deflate"} {
		body := compressed(t, coding, `{"model":"whisper","stream":true,"messages":[]}`)
		s.post("/v1/chat/completions", body, "Content-Encoding", coding).want(200)
		calls := b.asked("b1")
		if got := calls[len(calls)-1]; string(got.body) != body || got.header.Get("Content-Encoding") != coding || got.length != int64(len(body)) {
			t.Errorf("%s: got %d %q", got.header.Get("Content-Encoding"), got.length, got.body)
		}
	}
	a.wantOrder("")
	s.reload(fmt.Sprintf("llm_failover %s {\n%smodels {\nwhisper w-large-v3\n}\n}", a.URL, keysOf("k1")))
	s.post("/v1/chat/completions", compressed(t, "gzip", chat("whisper")), "Content-Encoding", "gzip").
		want(404, "compressed").wantJSON("error.code", "model_not_served")
	a.wantOrder("")
}

// caller is a caller who writes and reads its connection itself.
type caller struct {
	net.Conn
	*bufio.Reader
	t *testing.T
}

func (s *server) dial(format string, args ...any) *caller {
	s.t.Helper()
	address := strings.TrimPrefix(s.url, "http://")
	c, err := net.Dial("tcp", address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	caller := &caller{c, bufio.NewReader(c), s.t}
	caller.send("POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n", address)
	caller.send(format, args...)
	return caller
}

func (c *caller) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.Conn, format, args...); err != nil {
		c.t.Error(err)
	}
}

func (c *caller) answer() *received {
	c.t.Helper()
	a := &received{t: c.t}
	res, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		a.err = err
		return a
	}
	defer res.Body.Close()
	a.read(res)
	return a
}

func (c *caller) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func TestTrailers(t *testing.T) {
	var mu sync.Mutex
	var got []http.Header
	note := reply{do: func(w http.ResponseWriter, r *http.Request, c *call) {
		mu.Lock()
		got = append(got, r.Trailer.Clone())
		mu.Unlock()
		ok.do(w, r, c)
	}}
	a := newUpstream(t).on("k1", fails(500, "oops")).on("k2", note)
	s := serve(t, pair(a, quick, heldLittle))
	body := chat("m")
	s.dial("Transfer-Encoding: chunked\r\nTrailer: X-Sum, Authorization\r\n\r\n%x\r\n%s\r\n0\r\nX-Sum: 123\r\nAuthorization: Bearer mine\r\n\r\n", len(body), body).
		answer().want(200, "from-k2")
	a.on("k1", note)
	body = bigChat("abcdefgh", 1<<20)
	s.dial("Transfer-Encoding: chunked\r\nTrailer: X-Sum, Authorization\r\n\r\n%x\r\n%s\r\n0\r\nX-Sum: 123\r\nAuthorization: Bearer mine\r\n\r\n", len(body), body).
		answer().want(200, "from-k1")
	mu.Lock()
	defer mu.Unlock()
	for _, trailer := range got {
		if len(trailer) != 1 || trailer.Get("X-Sum") != "123" {
			t.Errorf("trailer %v", trailer)
		}
	}
	if last := a.asked("k1"); len(got) != 2 || string(last[len(last)-1].body) != body {
		t.Errorf("%d trailers, or another body", len(got))
	}
}

func TestExpectContinue(t *testing.T) {
	a := newUpstream(t)
	s := serve(t, pair(a, quick, heldLittle))
	for _, body := range []string{bigChat("abcdefgh", 1<<10), bigChat("abcdefgh", 3<<20)} {
		for _, framing := range []string{fmt.Sprintf("Content-Length: %d\r\n", len(body)), "Transfer-Encoding: chunked\r\n"} {
			c := s.dial("Expect: 100-continue\r\n%s\r\n", framing)
			if c.answer().want(100).status != 100 {
				continue
			}
			if strings.HasPrefix(framing, "Content") {
				c.send("%s", body)
			} else {
				c.send("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
			}
			c.answer().want(200, "from-k1")
			calls := a.asked("")
			if last := calls[len(calls)-1]; string(last.body) != body || last.header.Get("Expect") != "" {
				t.Errorf("got %d bytes of %d, Expect %q", len(last.body), len(body), last.header.Get("Expect"))
			}
		}
	}
}

// TestLargeBodyIsSentOnce: what a caller gets when the one attempt fails.
func TestLargeBodyIsSentOnce(t *testing.T) {
	const why = "limits body"
	for _, tc := range []struct {
		name   string
		fail   reply
		status int
		words  []string
	}{
		{"the upstream's answer", fails(503, "no luck"), 503, []string{"no luck"}},
		{"reset", just(rst{}), 502, []string{why, `"attempts_exhausted"`, "server_error"}},
		{"reset, unread", unread(just(rst{})), 502, []string{why, `"attempts_exhausted"`}},
		{"no answer", just(hang{}), 504, []string{why, `"attempts_exhausted"`}},
		{"credential", fails(401, "bad key"), 502, []string{why, `"attempts_exhausted"`}},
		{"redirect", says(302, "", "Location", "/x"), 502, []string{why, `"attempts_exhausted"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newUpstream(t).on("k1", tc.fail)
			s := serve(t, pair(a, patient, heldLittle))
			s.post("/v1/chat/completions", bigChat("abcdefgh", 2<<20)).want(tc.status, tc.words...).wantHeader("X-Should-Retry", "false")
			a.wantOrder("k1")
			s.wantState("default.keys.k1.totals.failures", "1", "default.keys.k1.in_flight", "0")
		})
	}
	t.Run("nobody there: nothing of it is gone", func(t *testing.T) {
		b := newUpstream(t)
		s := serve(t, fmt.Sprintf("llm_failover {\nprovider A http://%s {\n%s}\nprovider B %s {\n%s}\n%s%s}", freeAddress(t), keysOf("k1"), b.URL, keysOf("b1"), patient, heldLittle))
		body := bigChat("abcdefgh", 2<<20)
		s.post("/v1/chat/completions", body).want(200, "from-b1")
		if got := b.asked("b1")[0].body; string(got) != body {
			t.Errorf("%d bytes of %d", len(got), len(body))
		}
	})
}

// TestBrokenLargeUpload: a caller who does not send what it promised is to blame, not the key.
func TestBrokenLargeUpload(t *testing.T) {
	a := newUpstream(t)
	s := serve(t, pair(a, patient, heldLittle))
	half := strings.Repeat("x", 1<<20)
	for i, framing := range []string{
		"Content-Length: 3000000\r\n\r\n" + half,
		fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n1000\r\n", len(half), half),
		fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\nnonsense\r\n", len(half), half),
	} {
		c := s.dial("%s", framing)
		_ = c.Conn.(*net.TCPConn).CloseWrite()
		if got := c.answer(); got.status != statusCallerLeft { // net/http may take it for that
			got.want(400).wantJSON("error.code", "invalid_request")
		}
		c = s.dial("%s", framing)
		c.Close()
		eventually(t, "it is over", func() bool { return len(sink.those("http.log.access", "handled request")) == 2*i+2 })
	}
	s.wantState("default.keys.k1.last_error", "", "default.keys.k1.totals.failures", "0", "default.keys.k1.circuit.failures", "0", "default.keys.k1.in_flight", "0")
	if keys := strings.Trim(a.order(), "k1 "); keys != "" {
		t.Errorf("others were asked: %s", a.order())
	}
}

// TestSlowLargeUpload: the header limit is for the upstream, not for the caller.
func TestSlowLargeUpload(t *testing.T) {
	slow, hanging := bigChat("abcdefgh", 1<<20), bigChat("hanging", 1<<20)
	a := newUpstream(t).on("k1", reply{do: func(w http.ResponseWriter, r *http.Request, c *call) {
		answer := ok
		if string(c.body) == hanging {
			answer = just(hang{})
		}
		answer.do(w, r, c)
	}})
	s := serve(t, pair(a, patient, heldLittle))
	c := s.dial("Content-Length: %d\r\n\r\n%s", len(slow), slow[:600<<10])
	eventually(t, "the upload is under way", func() bool { return s.state("default.providers.default.keys.k1.in_flight") == "1" })
	s.dial("Content-Length: %d\r\n\r\n%s", len(hanging), hanging).answer().want(504) // the limit is over
	s.wantState("default.keys.k1.last_error.class", "timeout")
	c.send("%s", slow[600<<10:])
	c.answer().want(200, "from-k1")
	s.wantState("default.keys.k1.totals.failures", "1")
}

// rude is an upstream that answers each request as soon as it has its header, and hangs up.
func rude(t *testing.T, answer string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for r := bufio.NewReader(c); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					if line == "\r\n" {
						break
					}
				}
				io.WriteString(c, answer)
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// TestEarlyAnswerCounts: an answer counts, however rudely it comes while the body is still on its way.
func TestEarlyAnswerCounts(t *testing.T) {
	answer := func(status int, body string) string {
		return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
	}
	body := []byte(bigChat("abcdefgh", 6_000_000))
	for _, tc := range []struct {
		name, answer, more string
		status             int
		word               string
	}{
		{"a refusal", answer(400, `{"error":{"message":"too rude"}}`), "", 400, "too rude"},
		{"a refusal of a large body", answer(400, `{"error":{"message":"too rude"}}`), heldLittle, 400, "too rude"},
		{"an answer", answer(200, fmt.Sprintf(families[0].whole, "rude")), "", 200, "rude"},
		{"an answer to a large body", answer(200, fmt.Sprintf(families[0].whole, "rude")), heldLittle, 200, "rude"},
		{"without a length: its words may be lost", "HTTP/1.1 400 X\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n" + `{"error":{"message":"too rude"}}`, heldLittle, 400, "error"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, fmt.Sprintf("llm_failover %s {\n%s%s%s}", rude(t, tc.answer), keysOf("k1"), quick, tc.more))
			for range 15 {
				s.do(s.client, s.request(http.MethodPost, "/v1/chat/completions", bytes.NewReader(body))).want(tc.status, tc.word)
			}
			s.wantState("default.keys.k1.totals.failures", "0", "default.keys.k1.in_flight", "0")
		})
	}
}

// TestEarlyAnswerToLargeBody: a caller who still sends, or stopped sending, gets the answer; one that is a stream goes on
// while the body does.
func TestEarlyAnswerToLargeBody(t *testing.T) {
	a := newUpstream(t).on("k1", unread(fails(413, "far too much")))
	s := serve(t, pair(a, quick, heldLittle))
	body := bigChat("abcdefgh", 6_000_000)
	for _, c := range []*http.Client{s.client, s.two} {
		s.do(c, s.request(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))).want(413, "far too much")
	}
	stalled := s.dial("Content-Length: %d\r\n\r\n%s", len(body), body[:100<<10])
	stalled.answer().want(413, "far too much")
	if _, err := stalled.ReadByte(); err != io.EOF {
		t.Errorf("the connection goes on: %v", err)
	}

	f := &families[0]
	got := make(chan []byte, 1)
	a.on("k1", unread(reply{do: func(w http.ResponseWriter, r *http.Request, _ *call) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, f.text("early"))
		w.(http.Flusher).Flush()
		b, _ := io.ReadAll(r.Body)
		got <- b
		io.WriteString(w, f.end)
	}}))
	c := s.dial("Content-Length: %d\r\n\r\n%s", len(body), body[:100<<10])
	res, err := http.ReadResponse(c.Reader, nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(err)
	}
	first := make([]byte, len(f.text("early")))
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != f.text("early") {
		t.Fatalf("%q, %v", first, err)
	}
	c.send("%s", body[100<<10:])
	rest, err := io.ReadAll(res.Body)
	if string(rest) != f.end || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if b := <-got; string(b) != body {
		t.Errorf("%d bytes of %d arrived", len(b), len(body))
	}
	s.wantState("default.keys.k1.in_flight", "0")
}

func TestAnswersInCodings(t *testing.T) {
	f := &families[0]
	whole := fmt.Sprintf(f.whole, "from-coded")
	for _, coding := range []string{"gzip", "deflate", "zstd", "br"} {
		body := compressed(t, coding, whole)
		for _, tc := range []struct {
			name, body string
			word       string
		}{
			{"whole", body, "from-coded"}, {"cut", body[:len(body)-1], "from-k2"}, {"garbage", body + "xyz", "from-k2"},
			{"error", compressed(t, coding, `{"error":{"message":"oops"}}`), "from-k2"},
		} {
			t.Run(coding+" "+tc.name, func(t *testing.T) {
				a := newUpstream(t).on("k1", says(200, tc.body, "Content-Encoding", coding))
				s := serve(t, pair(a, quick))
				s.post("/v1/chat/completions", chat("m")).want(200, tc.word).wantHeader("Content-Encoding", "")
			})
		}
	}
	t.Run("brotli stream", func(t *testing.T) {
		a := newUpstream(t).on("k1", says(200, compressed(t, "br", f.begin+f.failed), "Content-Encoding", "br", "Content-Type", "text/event-stream")).
			on("k2", says(200, compressed(t, "br", f.begin+f.text("clear")+f.end), "Content-Encoding", "br", "Content-Type", "text/event-stream"))
		s := serve(t, pair(a, quick))
		if got := s.post(f.path, f.request).want(200); got.body != f.begin+f.text("clear")+f.end {
			t.Errorf("got %q", got.body)
		}
	})
	t.Run("what cannot be read goes as it came", func(t *testing.T) {
		a := newUpstream(t).on("k1", says(200, "?!", "Content-Encoding", "gzip, br"))
		s := serve(t, pair(a, quick))
		s.post(f.path, f.request).want(200, "?!").wantHeader("Content-Encoding", "gzip, br")
		a.on("k1", reply{do: func(w http.ResponseWriter, _ *http.Request, _ *call) {
			w.Header()["Content-Encoding"] = []string{"gzip", "br"}
			io.WriteString(w, "?!")
		}})
		s.post(f.path, f.request, "Accept-Encoding", "br").want(200, "?!") // else the client would unpack it
	})
}

// TestEarlyAnswerOverHTTP2: there the upstream resets the rest of the body.
func TestEarlyAnswerOverHTTP2(t *testing.T) {
	a := newUpstream(t, func(s *httptest.Server) { s.EnableHTTP2 = true }).on("k1", unread(fails(413, "far too much")))
	body := bigChat("abcdefgh", 6_000_000)
	for _, more := range []string{"", heldLittle} {
		s := serve(t, pair(a, quick, "transport http {\ntls_insecure_skip_verify\n}\n"+more))
		for range 5 {
			s.post("/v1/chat/completions", body).want(413, "far too much")
		}
		s.wantState("default.keys.k1.totals.failures", "0", "default.keys.k1.in_flight", "0")
	}
	if calls := a.asked(""); len(calls) != 10 || calls[0].proto != "HTTP/2.0" {
		t.Errorf("%d calls, %s", len(calls), calls[0].proto)
	}
}

// TestKeepaliveBeforeNoStream: who has got the beginning of a stream cannot be given another answer, but another key's stream.
func TestKeepaliveBeforeNoStream(t *testing.T) {
	goes := make(chan struct{})
	a := newUpstream(t).on("k1", reply{do: func(w http.ResponseWriter, r *http.Request, c *call) {
		act(w, r, []any{until(goes)})
		says(200, `{"object":"chat.completion","choices":[{"message":{"content":"whole"}}]}`).do(w, r, c)
	}})
	s := serve(t, pair(a, quick, "stream keepalive 5ms"))
	f := &families[0]
	o := s.open(s.client, f)
	o.until(": keepalive")
	close(goes)
	if got, err := o.rest(); err != nil || !strings.Contains(got, "from-k2") || strings.Contains(got, "whole") {
		t.Errorf("%q, %v", got, err)
	}
	a.wantOrder("k1 k2")
	if lines := sink.ours("attempt failed"); len(lines) != 1 || lines[0].Get("scope").String() != "request" {
		t.Errorf("%v", lines)
	}
	s.wantState("default.keys.k1.totals.failures", "0")
}

// TestNoKeepaliveInArrays: comments are for event streams.
func TestNoKeepaliveInArrays(t *testing.T) {
	last := "[" + strings.TrimLeft(arrayLast, ",\r\n") + "]"
	goes := make(chan struct{})
	a := newUpstream(t).on("k1", reply{do: func(w http.ResponseWriter, r *http.Request, c *call) {
		act(w, r, []any{until(goes)})
		says(200, last).do(w, r, c)
	}}, just(hang{}))
	s := serve(t, pair(a, quick, "stream keepalive 5ms"))
	got := make(chan *received)
	go func() { got <- s.post(arrayPath, "{}") }()
	eventually(t, "the array is asked for", func() bool { return a.order() == "k1" })
	o := s.open(s.client, &families[0])
	for range 3 { // by then comments were due in the array, too
		o.until(": keepalive")
	}
	close(goes)
	if a := (<-got).want(200); a.body != last {
		t.Errorf("got %q", a.body)
	}
}
