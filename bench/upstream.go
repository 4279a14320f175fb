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

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// Keys are as long as OpenAI's: what is done with each byte of one counts.
	goodKey = "sk-proj-bench0nLrT7QvXw2ZcYbHk5MdGfJ8sPaUeR1oViB6tNxCzWq3DyKgFhLmS9EuAjOpIrTwQv4ZxNcVbMl" +
		"KjHgFdSaPoIuYtReWqXzCvBnM7hT3BlbkFJx9QwErTyUiOpAsDfGhJkLzXcVbNmQ2w4E6r8T0yZ"
	limitedKey = "sk-proj-limited" + goodKey
	// limitedFor is how long a limited key asks to be left alone; reverse_proxy is told the same.
	limitedFor = 10 * time.Second

	messagesPath = "/v1/messages"
	paceHeader   = "X-Bench-Pace" // the wait between a stream's chunks
	chunks       = 100
	// A stream has eventsHeader contents, if that is given. With commentsHeader it never ends: after them only a comment
	// comes now and then.
	eventsHeader   = "X-Bench-Events"
	commentsHeader = "X-Bench-Comments"
)

// upstream plays a provider. It runs in the bench's process: only Caddy's CPU time counts.
type upstream struct {
	addr    string       // answers; limits who brings limitedKey
	limited string       // limits everybody
	wasted  atomic.Int64 // calls that were limited
}

func startUpstream() (*upstream, error) {
	up := &upstream{}
	for addr, h := range map[*string]http.HandlerFunc{&up.addr: up.serve, &up.limited: up.refuse} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*addr = l.Addr().String()
		server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(l) }() // as long as the process
	}
	return up, nil
}

// answerHeader is about what providers send with an answer.
var answerHeader = map[string]string{
	"Openai-Organization": "bench", "Openai-Processing-Ms": "412", "Openai-Version": "2020-10-01", "X-Request-Id": "req_0123456789abcdef",
	"X-Ratelimit-Limit-Requests": "10000", "X-Ratelimit-Limit-Tokens": "2000000", "X-Ratelimit-Remaining-Requests": "9999",
	"X-Ratelimit-Remaining-Tokens": "1999000", "X-Ratelimit-Reset-Requests": "6ms", "X-Ratelimit-Reset-Tokens": "30ms",
	"Strict-Transport-Security": "max-age=31536000", "X-Content-Type-Options": "nosniff", "Cf-Ray": "8f0000000000-FRA", "Server": "cloudflare",
}

func (up *upstream) serve(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.Header.Get("Authorization"), limitedKey) {
		up.refuse(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	h := w.Header()
	for name, value := range answerHeader {
		h.Set(name, value)
	}
	if r.Header.Get("Accept") != "text/event-stream" {
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", strconv.Itoa(len(chatAnswer)))
		_, _ = io.WriteString(w, chatAnswer)
		return
	}
	wait, _ := time.ParseDuration(r.Header.Get(paceHeader))
	h.Set("Content-Type", "text/event-stream")
	events, flush := chatStream, http.NewResponseController(w).Flush
	if n, _ := strconv.Atoi(r.Header.Get(eventsHeader)); n > 0 {
		paced(r.Context(), func(e string) bool {
			_, err := io.WriteString(w, e)
			return err == nil && flush() == nil
		}, n, wait, r.Header.Get(commentsHeader))
		return
	}
	if r.URL.Path == messagesPath {
		events = messagesStream
	}
	for _, e := range events {
		if _, err := io.WriteString(w, e); err != nil || flush() != nil {
			return
		}
		time.Sleep(wait)
	}
}

// paced writes a stream of n contents, the first at once.
func paced(ctx context.Context, write func(string) bool, n int, wait time.Duration, comments string) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := func(d time.Duration) bool {
		timer.Reset(d)
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	open := write(chatStream[0]) && write(chatStream[1])
	for i := 1; open && i < n; i++ { // late or not: events that catch up would melt together, and cost less
		open = pause(wait) && write(chatStream[1])
	}
	if silence, _ := time.ParseDuration(comments); silence > 0 {
		for open {
			open = pause(silence) && write(": still there\n\n")
		}
	}
	for _, e := range chatStream[len(chatStream)-2:] {
		open = open && write(e)
	}
}

func (up *upstream) refuse(w http.ResponseWriter, r *http.Request) {
	up.wasted.Add(1)
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", strconv.Itoa(int(limitedFor.Seconds())))
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, `{"error":{"message":"Rate limit reached for requests","type":"requests","param":null,"code":"rate_limit_exceeded"}}`)
}

const sentence = `The tide comes in over the flats, \"slowly\" at first,\nand then all at once; whoever stands out there hears it before it is seen. `

func words(n int) string {
	return strings.Repeat(sentence, n/len(sentence)+1)[:n/len(sentence)*len(sentence)]
}

// chatRequest is a request of about size bytes whose size is in a few long messages.
func chatRequest(size int) string {
	each := (size - 500) / 3
	return fmt.Sprintf(`{"model":"gpt-bench","messages":[{"role":"system","content":"%s"},{"role":"user","content":"%s"},`+
		`{"role":"user","content":"%s"}],"temperature":0.7,"max_tokens":1024,"tools":[{"type":"function","function":{"name":"look_up",`+
		`"description":"Looks a word up","parameters":{"type":"object","properties":{"word":{"type":"string"}},"required":["word"]}}}]}`,
		words(each), words(each), words(each))
}

// manyMessages is a request of about size bytes that is an agent's long conversation.
func manyMessages(size int) string {
	var b strings.Builder
	b.WriteString(`{"messages":[{"role":"system","content":"You are brief."}`)
	for b.Len() < size {
		fmt.Fprintf(&b, `,{"role":"user","content":"%s"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function",`+
			`"function":{"name":"look_up","arguments":"{\"word\": \"tide\"}"}}]},{"role":"tool","tool_call_id":"call_1","content":"%s"}`, sentence, words(600))
	}
	b.WriteString(`],"model":"gpt-bench","temperature":0.7}`)
	return b.String()
}

var (
	chatAnswer = fmt.Sprintf(`{"id":"chatcmpl-bench","object":"chat.completion","created":1760000000,"model":"gpt-bench","choices":[{"index":0,"message":`+
		`{"role":"assistant","content":"%s","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":812,`+
		`"completion_tokens":240,"total_tokens":1052},"service_tier":"default","system_fingerprint":"fp_bench"}`, words(1200))
	chatStream     = makeChatStream()
	messagesStream = makeMessagesStream()
)

func makeChatStream() []string {
	chunk := func(delta, finish string) string {
		return `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1760000000,"model":"gpt-bench","system_fingerprint":"fp_bench",` +
			`"choices":[{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":` + finish + `}]}` + "\n\n"
	}
	events := []string{chunk(`{"role":"assistant","content":"","refusal":null}`, "null")}
	for range chunks {
		events = append(events, chunk(`{"content":" tide"}`, "null"))
	}
	return append(events, chunk(`{}`, `"stop"`), "data: [DONE]\n\n")
}

func makeMessagesStream() []string {
	event := func(name, fields string) string {
		return "event: " + name + "\ndata: {\"type\":\"" + name + "\"" + fields + "}\n\n"
	}
	events := []string{
		event("message_start", `,"message":{"id":"msg_bench","type":"message","role":"assistant","model":"bench","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":812,"output_tokens":1}}`),
		event("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`), event("ping", ""),
	}
	for range chunks {
		events = append(events, event("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":" tide"}`))
	}
	return append(events, event("content_block_stop", `,"index":0`),
		event("message_delta", `,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":100}`), event("message_stop", ""))
}
