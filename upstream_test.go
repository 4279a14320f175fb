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
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// upstream is a scripted provider: each key has a list of replies, of which the last one repeats. A key without a
// script gets ok.
type upstream struct {
	*httptest.Server
	t testing.TB

	mu      sync.Mutex
	scripts map[string][]reply
	calls   []*call
}

// call is one call that an upstream got.
type call struct {
	key    string // whose credential it carried; none, foreign or several
	method string
	uri    string
	host   string
	length int64
	proto  string
	header http.Header
	body   []byte
	at     time.Time
	ended  chan struct{} // closed when the upstream's handler has returned
	left   bool          // we were gone by then
}

// reply answers one call.
type reply struct {
	early bool // without reading the request's body first
	do    func(w http.ResponseWriter, r *http.Request, c *call)
}

// newUpstream starts an upstream; configure may change the server before.
func newUpstream(t testing.TB, configure ...func(*httptest.Server)) *upstream {
	u := &upstream{t: t, scripts: make(map[string][]reply)}
	u.Server = httptest.NewUnstartedServer(http.HandlerFunc(u.serve))
	u.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls := false
	for _, f := range configure {
		f(u.Server)
		tls = tls || u.EnableHTTP2
	}
	if tls {
		u.StartTLS()
	} else {
		u.Start()
	}
	t.Cleanup(func() {
		u.CloseClientConnections()
		u.Close()
	})
	return u
}

// on sets a key's replies. It may be called again: then they are the ones from now on.
func (u *upstream) on(key string, replies ...reply) *upstream {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.scripts[key] = replies
	return u
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	c := &call{
		key: keyOf(r.Header), method: r.Method, uri: r.RequestURI, host: r.Host, proto: r.Proto, length: r.ContentLength,
		header: r.Header.Clone(), at: time.Now(), ended: make(chan struct{}),
	}
	u.mu.Lock()
	script := u.scripts[c.key]
	answer := ok
	if len(script) > 0 {
		answer = script[0]
	}
	if len(script) > 1 {
		u.scripts[c.key] = script[1:]
	}
	u.mu.Unlock()
	var err error
	if !answer.early {
		c.body, err = io.ReadAll(r.Body)
	}
	u.mu.Lock()
	u.calls = append(u.calls, c)
	u.mu.Unlock()
	defer func() {
		c.left = r.Context().Err() != nil
		close(c.ended)
	}()
	if err == nil {
		answer.do(w, r, c)
	}
}

// keyOf names the key whose credential a header carries.
func keyOf(h http.Header) string {
	found := "none"
	for _, field := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key", "X-Own"} {
		for _, v := range h.Values(field) {
			name := "foreign"
			for _, key := range keyNames {
				if strings.HasSuffix(v, secretOf(key)) {
					name = key
				}
			}
			if found != "none" {
				return "several"
			}
			found = name
		}
	}
	return found
}

// asked returns the calls with a key's credential, or all for "".
func (u *upstream) asked(key string) (calls []*call) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.calls {
		if key == "" || c.key == key {
			calls = append(calls, c)
		}
	}
	return calls
}

// order is whose credentials the calls carried, in order.
func (u *upstream) order() string {
	var keys []string
	for _, c := range u.asked("") {
		keys = append(keys, c.key)
	}
	return strings.Join(keys, " ")
}

// wantOrder checks order.
func (u *upstream) wantOrder(want string) {
	u.t.Helper()
	if got := u.order(); got != want {
		u.t.Errorf("calls %q, want %q", got, want)
	}
}

// forget forgets the calls so far.
func (u *upstream) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls = nil
}

// says answers with a status and a body. Headers are names and values in turn.
func says(status int, body string, headers ...string) reply {
	return reply{do: func(w http.ResponseWriter, _ *http.Request, _ *call) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}}
}

// fails answers with an error as OpenAI words it. Its message is also its mark.
func fails(status int, message string, headers ...string) reply {
	return says(status, fmt.Sprintf(`{"error":{"message":%q,"type":"","param":null,"code":null}}`, message), headers...)
}

// limited is a plain 429.
func limited(headers ...string) reply { return fails(429, "Rate limit reached", headers...) }

// unread makes a reply that does not read the request's body first.
func unread(r reply) reply { r.early = true; return r }

// ok answers from-<key>, in the path's dialect, as a stream if one is asked for.
var ok = reply{do: func(w http.ResponseWriter, r *http.Request, c *call) {
	s := scriptOf(r.URL.Path)
	if s.asked(r.URL.Path, c.body) {
		events(s.begin, s.text("from-"+c.key), s.end).do(w, r, c)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, s.whole, "from-"+c.key)
}}

// Parts of a scripted stream.
type (
	cut   struct{}        // the connection is closed without a proper end
	rst   struct{}        // it is reset
	hang  struct{}        // nothing more comes until we are gone
	until <-chan struct{} // nothing comes until the channel is closed
)

// events answers with a stream of parts: text, which is flushed, and the parts above.
func events(parts ...any) reply {
	return stream(map[string]string{"Content-Type": "text/event-stream"}, parts...)
}

func stream(headers map[string]string, parts ...any) reply {
	return reply{do: func(w http.ResponseWriter, r *http.Request, c *call) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		act(w, r, parts)
	}}
}

// just is a reply of parts without any answer: cut, rst or hang.
func just(parts ...any) reply {
	return reply{do: func(w http.ResponseWriter, r *http.Request, _ *call) { act(w, r, parts) }}
}

func act(w http.ResponseWriter, r *http.Request, parts []any) {
	for _, part := range parts {
		switch p := part.(type) {
		case string:
			if _, err := io.WriteString(w, p); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		case until:
			select {
			case <-p:
			case <-r.Context().Done():
				return
			}
		case hang:
			<-r.Context().Done()
		case cut:
			panic(http.ErrAbortHandler)
		case rst:
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
		default:
			panic(fmt.Sprintf("unknown part %T", p))
		}
	}
}

// family is how a dialect speaks.
type family struct {
	name, path  string // path is that of a stream
	request     string // which asks for a stream
	begin       string // without content
	delta       string // one piece of content, with %s
	end         string // everything from the last piece on
	marker      string // of the end, which must not follow a failure
	failed      string // an error event
	ownError    string // part of the error event that we word ourselves
	whole       string // a plain answer, with %q
	refusal     string // where a refusal says its code or type
	refusalSaid string // what it says there if all halted
}

func (f *family) text(s string) string { return fmt.Sprintf(f.delta, s) }

func (f *family) asked(path string, body []byte) bool {
	return strings.Contains(path, ":stream") || bytes.Contains(body, []byte(`"stream":true`))
}

// families are the four dialects.
var families = []family{{
	name: "chat", path: "/v1/chat/completions", request: chat("m", streaming),
	begin:  `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n",
	delta:  `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}` + "\n\n",
	end:    `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n",
	marker: "[DONE]",
	failed: `data: {"error":{"message":"The server had an error","type":"server_error","code":null}}` + "\n\n", ownError: `data: {"error":{"message":"`,
	whole:   `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`,
	refusal: "error.code", refusalSaid: "all_halted",
}, {
	name: "responses", path: "/v1/responses", request: `{"model":"m","input":"hi","stream":true}`,
	begin:  "event: response.created\n" + `data: {"type":"response.created","sequence_number":0,"response":{"id":"r","object":"response","status":"in_progress","output":[],"error":null}}` + "\n\n",
	delta:  "event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","item_id":"i","output_index":0,"content_index":0,"delta":"%s"}` + "\n\n",
	end:    "event: response.completed\n" + `data: {"type":"response.completed","response":{"id":"r","object":"response","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}]}}` + "\n\n",
	marker: "response.completed",
	failed: "event: error\n" + `data: {"type":"error","code":"server_error","message":"The server had an error","param":null}` + "\n\n", ownError: "event: error\n",
	whole:   `{"id":"r","object":"response","status":"completed","error":null,"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":%q}]}]}`,
	refusal: "error.code", refusalSaid: "all_halted",
}, {
	name: "messages", path: "/v1/messages", request: `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"stream":true}`,
	begin: "event: message_start\n" + `data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}` + "\n\n" +
		"event: content_block_start\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}` + "\n\n" + "event: ping\ndata: {\"type\": \"ping\"}\n\n",
	delta: "event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}` + "\n\n",
	end: "event: content_block_stop\n" + `data: {"type":"content_block_stop","index":0}` + "\n\n" +
		"event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}` + "\n\n" + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
	marker: "message_stop",
	failed: "event: error\n" + `data: {"type":"error","error":{"type":"api_error","message":"Internal server error"}}` + "\n\n", ownError: "event: error\n" + `data: {"type":"error","error":{"type":"`,
	whole:   `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":%q}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`,
	refusal: "error.type", refusalSaid: "overloaded_error",
}, {
	name: "gemini", path: "/v1beta/models/m:streamGenerateContent?alt=sse", request: `{"contents":[{"parts":[{"text":"hi"}]}]}`,
	begin:  `data: {"candidates":[{"content":{"role":"model","parts":[{"text":""}]},"index":0}],"responseId":"g"}` + "\n\n",
	delta:  `data: {"candidates":[{"content":{"role":"model","parts":[{"text":"%s"}]},"index":0}],"responseId":"g"}` + "\n\n",
	end:    `data: {"candidates":[{"content":{"role":"model","parts":[{"text":"!"}]},"finishReason":"STOP","index":0}],"responseId":"g"}` + "\n\n",
	marker: "STOP",
	failed: `data: {"error":{"code":500,"message":"An internal error has occurred","status":"INTERNAL"}}` + "\n\n", ownError: `data: {"error":{"code":502`,
	whole:   `{"candidates":[{"content":{"role":"model","parts":[{"text":%q}]},"finishReason":"STOP","index":0}]}`,
	refusal: "error.status", refusalSaid: "UNAVAILABLE",
}}

// scriptOf is the family of a path.
func scriptOf(path string) *family {
	switch {
	case strings.HasSuffix(path, "/responses"):
		return &families[1]
	case strings.HasSuffix(path, "/messages"):
		return &families[2]
	case strings.Contains(path, "enerateContent"):
		return &families[3]
	}
	return &families[0]
}
