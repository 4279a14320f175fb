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
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
)

// dice makes what the differential tests send.
type dice struct{ *rand.Rand }

func newDice(seed, index uint64) dice { return dice{rand.New(rand.NewPCG(seed, index))} }

func (d dice) percent(p int) bool { return d.IntN(100) < p }

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

// textPieces are pieces of a JSON string: words, all escapes, letters of each length, and what a careless search would
// take for the end of a stream or an error.
var textPieces = []string{
	"the ", "quick ", "brown", " ", "fox. ", "Grüße", "汉字", "😀", "\u2028", "\x7f", "'", "{", "}", "[", "]", ",", ":", "data:", "event: ",
	`\"`, `\\`, `\/`, `\b`, `\f`, `\n`, `\r`, `\t`, `\u0000`, `\u0041`, `\u00e9`, `\ud83d\ude00`, `\ud800`, `\uD83D\uDE00`, `\\\"`, `\\n`,
	`[DONE]`, `\n\ndata: [DONE]\n\n`, `\r\n\r\n`, `\"finish_reason\":\"stop\"`, `\"error\":{\"message\":\"x\"}`, `event: error\ndata: {}\n\n`,
	`message_stop`, `{\"type\":\"response.completed\"}`, `\",\"finishReason\":\"STOP\"`, `error`, `code`,
}

// textWhole are texts that are a word of the dialects as a whole.
var textWhole = []string{"error", "code", "finish_reason", "stop_reason", "message_stop", "response.completed", "response.failed", "[DONE]", "finishReason", "success", " ", "0"}

// text is a JSON string of up to about n bytes, and at least one letter.
func (d dice) text(n int) string {
	if d.percent(10) {
		return `"` + pick(d, textWhole...) + `"`
	}
	var b strings.Builder
	b.WriteString(`"`)
	for size := 1 + d.IntN(n); b.Len() <= size; {
		b.WriteString(pick(d, textPieces...))
	}
	b.WriteString(`"`)
	return b.String()
}

// value is any JSON value.
func (d dice) value(depth int) string {
	if depth == 0 {
		return pick(d, "null", "true", "false", "0", "-1.50e+3", "12345678901234567890", `""`, d.text(20))
	}
	var parts []string
	object := d.percent(50)
	for range d.IntN(4) {
		v := d.value(depth - 1)
		if object {
			v = fmt.Sprintf(`"k%d"%s:%s%s`, d.IntN(50), d.blank(), d.blank(), v)
		}
		parts = append(parts, d.blank()+v+d.blank())
	}
	if object {
		return "{" + strings.Join(parts, ",") + d.blank() + "}"
	}
	return "[" + strings.Join(parts, ",") + d.blank() + "]"
}

// blank is white space that may stand between JSON tokens.
func (d dice) blank() string { return pick(d, "", "", "", "", " ", "\n", "\r\n", "\t", "  ") }

// piece is one event of a stream, before it is written down.
type piece struct {
	name, data string
	content    bool // the caller waits for it
	finish     bool // it holds a finish reason
}

// bigText is now and then up to 1 MB.
func (d dice) bigText() string {
	switch {
	case d.percent(1):
		return d.text(1 << 20)
	case d.percent(4):
		return d.text(20 << 10)
	}
	return d.text(60)
}

// arguments are a tool call's, as one piece or several of a JSON string.
func (d dice) arguments() []string {
	whole := []string{`{\"city\":`, `\"Os`, `lo\",`, `\"n\":[1,`, `2]}`}
	if d.percent(30) {
		return []string{strings.Join(whole, "")}
	}
	return whole
}

// chatParts is an answer of chat completions.
func (d dice) chatParts() (parts []piece) {
	extra := pick(d, "", `,"usage":null`, `,"error":null`, `,"system_fingerprint":"","code":0`, `,"obfuscation":`+d.text(10))
	chunk := func(choice int, delta, finish string) string {
		return fmt.Sprintf(`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":%d,"delta":%s,"logprobs":null,"finish_reason":%s}]%s}`, choice, delta, finish, extra)
	}
	choices := 1
	if d.percent(20) {
		choices = 2 + d.IntN(2)
	}
	if d.percent(20) {
		parts = append(parts, piece{data: `{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}`})
	}
	for i := range choices {
		parts = append(parts, piece{data: chunk(i, `{"role":"assistant","content":""}`, "null")})
	}
	reason := `"stop"`
	for n := 1 + d.IntN(12); n > 0; n-- {
		i := d.IntN(choices)
		switch d.IntN(6) {
		case 0:
			parts = append(parts, piece{data: chunk(i, `{"`+pick(d, "reasoning_content", "reasoning", "refusal")+`":`+d.text(60)+`,"content":null}`, "null"), content: true})
		case 1:
			reason = `"tool_calls"`
			parts = append(parts, piece{data: chunk(i, `{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":`+d.text(10)+`,"arguments":""}}]}`, "null"), content: true})
			for _, a := range d.arguments() {
				parts = append(parts, piece{data: chunk(i, `{"tool_calls":[{"index":0,"function":{"arguments":"`+a+`"}}]}`, "null"), content: true})
			}
		case 2:
			parts = append(parts, piece{data: chunk(i, pick(d, `{}`, `{"content":""}`, `{"content":null}`), pick(d, `null`, `""`))})
		default:
			parts = append(parts, piece{data: chunk(i, `{"content":`+d.bigText()+`}`, "null"), content: true})
		}
	}
	parts = append(parts, piece{data: chunk(0, `{"content":`+d.text(60)+`}`, "null"), content: true})
	for i := range choices {
		parts = append(parts, piece{data: chunk(i, `{}`, pick(d, reason, `"length"`, `"content_filter"`)), finish: true})
		for left := choices - 1 - i; left > 0 && d.percent(40); {
			parts = append(parts, piece{data: chunk(i+1+d.IntN(left), `{"content":`+d.text(60)+`}`, "null"), content: true})
		}
	}
	if d.percent(40) {
		parts = append(parts, piece{data: `{"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":1}}`})
	}
	if d.percent(75) {
		parts = append(parts, piece{data: "[DONE]", finish: true})
	}
	return parts
}

func (d dice) responsesParts() (parts []piece) {
	n := 0
	add := func(content bool, kind, more string) {
		name := kind
		if d.percent(10) {
			name = "" // some servers leave it out
		}
		parts = append(parts, piece{name: name, data: fmt.Sprintf(`{"type":%q,"sequence_number":%d%s}`, kind, n, more), content: content})
		n++
	}
	begun := `,"response":{"id":"r","object":"response","status":"in_progress","error":null,"incomplete_details":null,"output":[]}`
	add(false, "response.created", begun)
	add(false, "response.in_progress", begun)
	for item := range 1 + d.IntN(3) {
		at := fmt.Sprintf(`,"item_id":"i","output_index":%d`, item)
		switch d.IntN(3) {
		case 0:
			add(false, "response.output_item.added", at+`,"item":{"id":"i","type":"reasoning","summary":[]}`)
			for range d.IntN(4) {
				add(true, "response.reasoning_summary_text.delta", at+`,"delta":`+d.text(60))
			}
		case 1:
			add(true, "response.output_item.added", at+`,"item":{"id":"i","type":"function_call","status":"in_progress","arguments":"","call_id":"c","name":`+d.text(9)+`}`)
			for _, a := range d.arguments() {
				add(true, "response.function_call_arguments.delta", at+`,"delta":"`+a+`"`)
			}
		}
		add(false, "response.output_item.added", at+`,"item":{"id":"i","type":"message","status":"in_progress","role":"assistant","content":[]}`)
		add(false, "response.content_part.added", at+`,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}`)
		for range 1 + d.IntN(5) {
			add(true, "response."+pick(d, "output_text", "output_text", "refusal")+".delta", at+`,"delta":`+d.bigText()+`,"logprobs":[],"obfuscation":"x"`)
		}
		add(true, "response.output_text.done", at+`,"text":`+d.text(60))
		add(true, "response.output_item.done", at+`,"item":{"id":"i","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":`+d.text(60)+`}]}`)
	}
	kind, details := "completed", "null"
	if d.percent(20) {
		kind, details = "incomplete", `{"reason":"max_output_tokens"}`
	}
	add(false, "response."+kind, `,"response":{"id":"r","object":"response","status":"`+kind+`","error":null,"incomplete_details":`+details+`,"output":[{"type":"message","content":[{"type":"output_text","text":`+d.text(60)+`}]}]}`)
	parts[len(parts)-1].finish = true
	return parts
}

func (d dice) messagesParts() (parts []piece) {
	add := func(content bool, kind, more string) {
		name := kind
		if d.percent(10) {
			name = ""
		}
		parts = append(parts, piece{name: name, data: fmt.Sprintf(`{"type":%q%s}`, kind, more), content: content})
	}
	ping := func() {
		if d.percent(30) {
			add(false, "ping", "")
		}
	}
	add(false, "message_start", `,"message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`)
	reason := "end_turn"
	for i := range 1 + d.IntN(3) {
		at := fmt.Sprintf(`,"index":%d`, i)
		ping()
		switch d.IntN(3) {
		case 0:
			add(false, "content_block_start", at+`,"content_block":{"type":"thinking","thinking":"","signature":""}`)
			add(true, "content_block_delta", at+`,"delta":{"type":"thinking_delta","thinking":`+d.text(60)+`}`)
			add(true, "content_block_delta", at+`,"delta":{"type":"signature_delta","signature":"EqQBCgIYAhIM/+=="}`)
		case 1:
			reason = "tool_use"
			add(true, "content_block_start", at+`,"content_block":{"type":"tool_use","id":"t1","name":`+d.text(9)+`,"input":{}}`)
			add(false, "content_block_delta", at+`,"delta":{"type":"input_json_delta","partial_json":""}`)
			for _, a := range d.arguments() {
				add(true, "content_block_delta", at+`,"delta":{"type":"input_json_delta","partial_json":"`+a+`"}`)
			}
		default:
			add(false, "content_block_start", at+`,"content_block":{"type":"text","text":""}`)
			for range 1 + d.IntN(5) {
				add(true, "content_block_delta", at+`,"delta":{"type":"text_delta","text":`+d.bigText()+`}`)
				ping()
			}
		}
		add(false, "content_block_stop", at)
	}
	add(false, "message_delta", `,"delta":{"stop_reason":"`+pick(d, reason, "max_tokens", "refusal")+`","stop_sequence":null},"usage":{"output_tokens":3}`)
	parts[len(parts)-1].finish = true
	if d.percent(85) {
		add(false, "message_stop", "")
	}
	return parts
}

func (d dice) geminiParts() (parts []piece) {
	add := func(content bool, candidate string) {
		parts = append(parts, piece{data: `{"candidates":[{` + candidate + `"index":0}],"usageMetadata":{"promptTokenCount":1},"modelVersion":"m","responseId":"g"}`, content: content})
	}
	if d.percent(50) {
		add(false, `"content":{"role":"model","parts":[{"text":""}]},`)
	}
	for n := 1 + d.IntN(8); n > 0; n-- {
		switch d.IntN(5) {
		case 0:
			add(true, `"content":{"role":"model","parts":[{"text":`+d.text(60)+`,"thought":true}]},`)
		case 1:
			add(true, `"content":{"role":"model","parts":[{"functionCall":{"name":`+d.text(9)+`,"args":`+d.value(2)+`}}]},`)
		default:
			add(true, `"content":{"role":"model","parts":[{"text":`+d.bigText()+`}]},`)
		}
	}
	add(true, `"content":{"role":"model","parts":[{"text":`+d.text(9)+`}]},"finishReason":"`+pick(d, "STOP", "MAX_TOKENS")+`",`)
	parts[len(parts)-1].finish = true
	return parts
}

// randomStream is a stream written down.
type randomStream struct {
	kind   string
	raw    string
	events []written
}

// written is an event or a comment in a stream: where it ends, and where its last line does.
type written struct {
	piece
	end, data int
}

// content is where the first event with content ends.
func (s *randomStream) content() int {
	return s.events[slices.IndexFunc(s.events, func(e written) bool { return e.content })].end
}

// until returns where the last whole event of a beginning of the stream ends.
func (s *randomStream) until(size int) (end int) {
	for _, e := range s.events {
		if e.end <= size {
			end = e.end
		}
	}
	return end
}

// finished reports whether the first size bytes hold a finish reason after which there is no content: there is where
// several choices come side by side. Lines: it is enough that the last line is whole.
func (s *randomStream) finished(size int, lines bool) (finished bool) {
	for _, e := range s.events {
		if e.end <= size || lines && e.data <= size {
			finished = e.finish || finished && !e.content
		}
	}
	return finished
}

// stream writes an answer down as an event stream, or as an array.
func (d dice) stream(parts []piece, array bool) randomStream {
	s := randomStream{kind: pick(d, "text/event-stream", "text/event-stream; charset=utf-8", "text/event-stream;charset=UTF-8")}
	var b strings.Builder
	if array {
		s.kind = "application/json; charset=UTF-8"
		for i, p := range parts {
			b.WriteString(pick(d, "", "\n", "\r\n") + string("[,"[min(i, 1)]) + pick(d, "", "\r\n", " \n") + p.data)
			p.finish = false // nothing but its bracket ends an array
			s.events = append(s.events, written{p, b.Len(), b.Len()})
		}
		b.WriteString(pick(d, "", "\n", "\r\n") + "]")
		s.events = append(s.events, written{piece{finish: true}, b.Len(), b.Len()})
		s.raw = b.String() + pick(d, "", "\n", "\r\n")
		return s
	}
	if d.percent(10) {
		b.WriteString("\xef\xbb\xbf")
	}
	ends := pick(d, []string{"\n"}, []string{"\n"}, []string{"\r\n"}, []string{"\r"}, []string{"\n", "\r\n", "\r"})
	for i, p := range parts {
		end := pick(d, ends...)
		last := i == len(parts)-1
		if d.percent(10) {
			b.WriteString(pick(d, ": ping", ":", ": data: [DONE]", "retry: 10", "id: 7", ": OPENROUTER PROCESSING") + end + end)
			s.events = append(s.events, written{piece{}, b.Len(), b.Len()})
		}
		field := func(name, value string) { b.WriteString(name + pick(d, ": ", ": ", ":") + value + end) }
		if p.name != "" {
			field("event", p.name)
		}
		if d.percent(5) {
			b.WriteString(pick(d, ": comment", "id: "+pick(d, "8", "error"), "x-unknown", "x: y") + end)
		}
		text := p.data
		if d.percent(10) && text[0] == '{' { // where a line may end: not in a string, so at the very beginning or end
			text = "{\n" + text[1:len(text)-1] + "\n}"
		}
		for l := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
			field("data", l)
		}
		data := b.Len() - len(end)
		if !last || d.percent(90) {
			b.WriteString(end)
		}
		s.events = append(s.events, written{p, b.Len(), data})
	}
	if s.raw = b.String(); d.percent(5) {
		s.raw += pick(d, ends...) // one more blank line, or the rest of the one before
	} else if d.percent(5) {
		s.raw = strings.TrimRight(s.raw, "\r\n") // not even the last line ends
		e := &s.events[len(s.events)-1]
		e.end, e.data = len(s.raw), len(s.raw)
	}
	return s
}

// drip writes s in random writes, of which most leave at once.
func (d dice) drip(w http.ResponseWriter, write func([]byte) error, s string) {
	most := max(pick(d, 3, 40, 700, 20_000), len(s)/200+1)
	for len(s) > 0 {
		n := min(1+d.IntN(most), len(s))
		if i := strings.IndexAny(s, "\r\n"); i >= 0 && i < n && d.percent(20) {
			n = i + 1 // within what ends an event
		}
		if write([]byte(s[:n])) != nil {
			return
		}
		s = s[n:]
		if d.percent(70) {
			w.(http.Flusher).Flush()
		}
		if d.percent(30) {
			runtime.Gosched()
		}
	}
}

// dialectStream is a random stream of one of the ways to stream, and the family that speaks so.
func (d dice) dialectStream() (*family, randomStream, string) {
	switch d.IntN(5) {
	case 0:
		return &families[0], d.stream(d.chatParts(), false), families[0].path
	case 1:
		return &families[1], d.stream(d.responsesParts(), false), families[1].path
	case 2:
		return &families[2], d.stream(d.messagesParts(), false), families[2].path
	case 3:
		return &families[3], d.stream(d.geminiParts(), false), families[3].path
	}
	return &families[3], d.stream(d.geminiParts(), true), arrayPath
}
