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
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// eachFamily runs a test for each dialect.
func eachFamily(t *testing.T, f func(t *testing.T, f *family)) {
	for i := range families {
		t.Run(families[i].name, func(t *testing.T) { f(t, &families[i]) })
	}
}

// opened is an answer that is read as it comes.
type opened struct {
	t      *testing.T
	cancel context.CancelFunc
	*http.Response
	lines *bufio.Reader
	got   strings.Builder
}

// open sends a stream request and returns when the answer's headers are there.
func (s *server) open(client *http.Client, f *family) *opened {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	res, err := client.Do(s.request(http.MethodPost, f.path, strings.NewReader(f.request)).WithContext(ctx))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { res.Body.Close() })
	return &opened{t: s.t, cancel: cancel, Response: res, lines: bufio.NewReader(res.Body)}
}

// until reads up to the line that holds a word.
func (o *opened) until(word string) {
	o.t.Helper()
	for {
		line, err := o.lines.ReadString('\n')
		o.got.WriteString(line)
		if strings.Contains(line, word) {
			return
		}
		if err != nil {
			o.t.Fatalf("%v before %q in %q", err, word, o.got.String())
		}
	}
}

// rest reads to the end, and returns all there was.
func (o *opened) rest() (string, error) {
	b, err := io.ReadAll(o.lines)
	o.got.Write(b)
	leaks.look("stream", []byte(o.got.String()))
	return o.got.String(), err
}

func TestTokensLeaveAsTheyCome(t *testing.T) {
	eachFamily(t, func(t *testing.T, f *family) {
		go1, go2 := make(chan struct{}), make(chan struct{})
		a := newUpstream(t).on("k1", events(f.begin, f.text("one"), until(go1), f.text("two"), until(go2), f.end))
		for _, site := range []string{"", "encode gzip zstd\n"} {
			s := serve(t, site+pair(a))
			for _, client := range []*http.Client{s.client, s.two} {
				o := s.open(client, f)
				o.until("one") // the upstream waits for us: it has come although nothing follows it
				if o.StatusCode != 200 || o.Header.Get("Content-Type") != "text/event-stream" {
					t.Error(o.StatusCode, o.Header)
				}
				s.wantState("default.keys.k1.in_flight", "1")
				go1 <- struct{}{}
				o.until("two")
				go2 <- struct{}{}
				want := f.begin + f.text("one") + f.text("two") + f.end
				if got, err := o.rest(); got != want || err != nil {
					t.Errorf("%v, got %q, want %q", err, got, want)
				}
			}
			if err := s.load("respond ok"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestStreamsThatFailAfterContent pins §5.1: no replay, an error event, an aborted transfer, no terminal marker.
func TestStreamsThatFailAfterContent(t *testing.T) {
	type failure struct {
		name  string
		parts []any
		own   bool // the error event is the upstream's own
		class string
	}
	eachFamily(t, func(t *testing.T, f *family) {
		for _, tc := range []failure{
			{"reset", []any{rst{}}, false, "server_error"},
			{"cut", []any{cut{}}, false, "server_error"},
			{"a clean end without an ending", nil, false, "server_error"},
			{"half an event, then cut", []any{f.text("three")[:20], cut{}}, false, "server_error"},
			{"silence", []any{hang{}}, false, "timeout"},
			{"an error event", []any{f.failed, f.end}, true, "server_error"},
			{"an error as bare JSON", []any{"{\n \"error\": {\"message\": \"oops\", \"type\": \"server_error\"}\n}\n\n", f.end}, false, "server_error"},
			{"an error under a field of its own", []any{"error: {\"code\":500,\"message\":\"oops\",\"type\":\"server_error\"}\n\n", f.end}, false, "server_error"},
		} {
			t.Run(tc.name, func(t *testing.T) {
				a := newUpstream(t).on("k1", events(append([]any{f.begin, f.text("one"), f.text("two")}, tc.parts...)...))
				s := serve(t, pair(a, short))
				for proto, client := range map[int]*http.Client{1: s.client, 2: s.two} {
					a.forget()
					got := s.do(client, s.request(http.MethodPost, f.path, strings.NewReader(f.request))).wantAborted()
					if got.proto != proto {
						t.Error("HTTP version", got.proto)
					}
					content := f.begin + f.text("one") + f.text("two")
					rest, ok := strings.CutPrefix(got.body, content)
					switch {
					case !ok:
						t.Errorf("got %q, want %q first", got.body, content)
					case tc.own && rest != f.failed:
						t.Errorf("ends with %q, want the upstream's own %q", rest, f.failed)
					case !tc.own && (!strings.HasPrefix(rest, f.ownError) || !strings.HasSuffix(rest, "\n\n")):
						t.Errorf("ends with %q, want an error event", rest)
					}
					got.lacks(f.marker, "from-k2")
					a.wantOrder("k1")
				}
				s.wantState("default.keys.k1.last_error.class", tc.class, "default.keys.k1.totals.failures", "2",
					"default.keys.k1.circuit.failures", "1", "default.keys.k1.in_flight", "0")
				if lines := sink.ours("answer broke off after its first content"); len(lines) != 2 {
					t.Errorf("%d log lines, want 2", len(lines))
				}
			})
		}
	})
}

func TestStreamEndsAtItsMarker(t *testing.T) {
	eachFamily(t, func(t *testing.T, f *family) {
		a := newUpstream(t).on("k1", events(f.begin, f.text("one"), f.end, hang{}))
		s := serve(t, pair(a))
		for _, client := range []*http.Client{s.client, s.two} {
			o := s.open(client, f)
			if got, err := o.rest(); got != f.begin+f.text("one")+f.end || err != nil {
				t.Errorf("%v: %q", err, got)
			}
		}
		for _, c := range a.asked("") {
			<-c.ended // we hung up
		}
		s.wantState("default.keys.k1.totals.failures", "0")
	})
}

// TestFinishedIsFinished: after a finish reason a lost marker is no failure.
func TestFinishedIsFinished(t *testing.T) {
	f := &families[0]
	for name, end := range map[string][]any{"clean": nil, "cut": {cut{}}, "reset": {rst{}}, "silence": {hang{}}} {
		t.Run(name, func(t *testing.T) {
			body := f.begin + f.text("one") + strings.TrimSuffix(f.end, "data: [DONE]\n\n")
			a := newUpstream(t).on("k1", events(append([]any{body}, end...)...))
			s := serve(t, pair(a, short))
			if got := s.post(f.path, f.request).want(200); got.body != body {
				t.Errorf("%q", got.body)
			}
			s.wantState("default.keys.k1.totals.failures", "0")
		})
	}
}

// TestAwkwardStreams: bytes that have to pass as they are.
func TestAwkwardStreams(t *testing.T) {
	f := &families[0]
	crlf := strings.ReplaceAll(f.begin+f.text("one")+f.end, "\n", "\r\n")
	cr := strings.ReplaceAll(f.begin+f.text("one")+f.end, "\n", "\r")
	word := f.text("Grüße \xf0\x9f\x98\x80")
	for name, parts := range map[string][]any{
		"CRLF":                 {crlf},
		"CR":                   {cr},
		"byte order mark":      {"\xef\xbb\xbf" + f.begin, f.text("one"), f.end},
		"split in a letter":    {f.begin, word[:len(word)-68], word[len(word)-68:], f.end},
		"byte by byte":         bytesOf(f.begin + f.text("one") + f.end),
		"invalid UTF-8":        {f.begin, f.text("\xff\xfe\xfa"), f.end},
		"a broken event":       {f.begin, f.text("one"), "data: {\"choices\":[{\n\n", f.end},
		"comments":             {": hi\n\n", f.begin, ": hi\n\n", f.text("one"), ": hi\n\n", f.end},
		"several data lines":   {f.begin, "data: {\"choices\":[{\"delta\":\ndata: {\"content\":\"x\"}}]}\n\n", f.end},
		"id and retry":         {"id: 7\nretry: 10\n" + f.begin, "id: 8\n" + f.text("one"), f.end},
		"three megabytes":      {f.begin, f.text(strings.Repeat("x", 3<<20)), f.end},
		"marker without space": {f.begin, f.text("one"), "data:[DONE]\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var want strings.Builder
			for _, p := range parts {
				want.WriteString(p.(string))
			}
			a := newUpstream(t).on("k1", events(parts...))
			s := serve(t, pair(a, quick))
			if got := s.post(f.path, f.request).want(200); got.body != want.String() {
				t.Errorf("got %.300q, want %.300q", got.body, want.String())
			}
			a.wantOrder("k1")
		})
	}
}

func bytesOf(s string) (parts []any) {
	for i := range len(s) {
		parts = append(parts, s[i:i+1])
	}
	return parts
}

// TestFirstToken: what is no content does not keep a stream alive.
func TestFirstToken(t *testing.T) {
	eachFamily(t, func(t *testing.T, f *family) {
		dripping := reply{do: func(w http.ResponseWriter, r *http.Request, _ *call) {
			w.Header().Set("Content-Type", "text/event-stream")
			repeat(r.Context(), 5*time.Millisecond, func() bool {
				act(w, r, []any{": ping\n\n", f.begin})
				return false
			})
		}}
		a := newUpstream(t).on("k1", dripping)
		s := serve(t, pair(a, quick, `timeouts {
			first_token 150ms
			idle 100ms
		}`))
		s.post(f.path, f.request).want(200, "from-k2")
		a.wantOrder("k1 k2")
		<-a.asked("k1")[0].ended
		s.wantState("default.keys.k1.last_error.class", "timeout")
		if lines := sink.ours("attempt failed"); len(lines) != 1 || lines[0].Get("class").String() != "timeout" {
			t.Error(lines)
		}
	})
}

// TestLimits: each limit ends the silent call upstream, and the caller hears of a timeout.
func TestLimits(t *testing.T) {
	f := &families[0]
	for name, tc := range map[string]struct {
		script reply
		limits string
		status int
		code   string
	}{
		"headers":                {just(hang{}), "headers 100ms", 504, "timeout"},
		"idle before content":    {events(f.begin, hang{}), "idle 100ms", 504, "timeout"},
		"first token":            {events(f.begin, hang{}), "first_token 100ms", 504, "timeout"},
		"deadline on headers":    {just(hang{}), "deadline 1100ms", 504, "deadline"},
		"deadline before a text": {events(f.begin, hang{}), "deadline 1100ms", 504, "deadline"},
		"gzip that stalls":       {stream(map[string]string{"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}, hang{}), "idle 100ms", 504, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newUpstream(t).on("k1", tc.script)
			s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+quick+"timeouts {\n"+tc.limits+"\n}\n}")
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			s.do(s.client, s.request(http.MethodPost, f.path, strings.NewReader(f.request)).WithContext(ctx)).
				want(tc.status).wantJSON("error.code", tc.code, "error.attempts.0.class", "timeout").wantHeader("X-Should-Retry", "false")
			for _, c := range a.asked("") {
				<-c.ended
			}
		})
	}
}

func TestDeadlineEndsAtCommit(t *testing.T) {
	f := &families[0]
	late := make(chan struct{})
	a := newUpstream(t).on("k1", events(f.begin, f.text("one"), until(late), f.end), just(hang{}))
	s := serve(t, pair(a, "retry {\nmin_attempt 10ms\n}\ntimeouts {\ndeadline 200ms\n}"))
	o := s.open(s.client, f)
	o.until("one")
	s.post(f.path, f.request).want(504).wantJSON("error.code", "deadline") // so the first one's is over, too
	close(late)
	if got, err := o.rest(); err != nil || !strings.Contains(got, f.marker) {
		t.Errorf("%v %q", err, got)
	}
}

// TestCallerLeaves: whenever a caller leaves, the upstream call ends at once and nobody is charged.
func TestCallerLeaves(t *testing.T) {
	eachFamily(t, func(t *testing.T, f *family) {
		for name, script := range map[string]reply{
			"before the headers": just(hang{}),
			"before the content": events(f.begin, hang{}),
			"after the content":  events(f.begin, f.text("one"), hang{}),
		} {
			t.Run(name, func(t *testing.T) {
				a := newUpstream(t).on("k1", script)
				s := serve(t, pair(a))
				for _, client := range []*http.Client{s.client, s.two} {
					a.forget()
					ctx, cancel := context.WithCancel(context.Background())
					gone := make(chan *received)
					go func() {
						gone <- s.do(client, s.request(http.MethodPost, f.path, strings.NewReader(f.request)).WithContext(ctx))
					}()
					eventually(t, "the call is under way", func() bool { return len(a.asked("")) == 1 })
					cancel()
					<-gone
					<-a.asked("")[0].ended
					eventually(t, "nothing is in flight", func() bool { return s.state("default.providers.default.keys.k1.in_flight") == "0" })
					a.wantOrder("k1")
				}
				s.wantState("default.keys.k1.totals.failures", "0", "default.keys.k1.last_error", "", "default.keys.k1.circuit.failures", "0")
				if lines := sink.ours(""); len(lines) > 0 {
					t.Error(lines)
				}
			})
		}
	})
	t.Run("during a wait", func(t *testing.T) {
		a := newUpstream(t).on("k1", limited())
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+"retry {\nsame_key 1m\nmax_wait 2m\n window 5m\n}\n}")
		ctx, cancel := context.WithCancel(context.Background())
		gone := make(chan *received)
		go func() {
			gone <- s.do(s.client, s.request(http.MethodPost, "/v1/chat/completions", strings.NewReader(chat("m"))).WithContext(ctx))
		}()
		eventually(t, "it waits", func() bool { return len(sink.ours("attempt failed")) == 1 })
		cancel()
		<-gone
		eventually(t, "the request is over", func() bool { return len(sink.those("http.log.access", "handled request")) == 1 })
		a.wantOrder("k1")
	})
	t.Run("a probe hands its slot back", func(t *testing.T) {
		a := newUpstream(t).on("k1", fails(500, "oops"), fails(500, "oops"), just(hang{}), ok)
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+quick+"circuit {\nthreshold 1\ncooldown 50ms\n}\n}")
		s.post("/v1/chat/completions", chat("m")).want(500)
		a.on("k1", just(hang{}), ok)
		a.forget()
		eventually(t, "half open", func() bool { return s.state("default.providers.default.keys.k1.status") == "half_open" })
		ctx, cancel := context.WithCancel(context.Background())
		gone := make(chan *received)
		go func() {
			gone <- s.do(s.client, s.request(http.MethodPost, "/v1/chat/completions", strings.NewReader(chat("m"))).WithContext(ctx))
		}()
		eventually(t, "the probe is under way", func() bool { return len(a.asked("")) == 1 })
		cancel()
		<-gone
		eventually(t, "the slot is free", func() bool { return s.state("default.providers.default.keys.k1.in_flight") == "0" })
		s.post("/v1/chat/completions", chat("m")).want(200, "from-k1")
	})
}
