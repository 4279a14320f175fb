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

// Package dialect holds the facts of each LLM API family: its paths, its credential header, what counts as content
// in its answers, and how its streams end. It decides nothing.
package dialect

import (
	"bytes"

	"github.com/tidwall/gjson"
)

// Dialect is an API family.
type Dialect string

// The dialects. Paths that belong to none of the other three are Chat.
const (
	Chat      Dialect = "chat"      // OpenAI chat completions, and the other OpenAI paths
	Responses Dialect = "responses" // OpenAI responses
	Messages  Dialect = "messages"  // Anthropic messages
	Gemini    Dialect = "gemini"    // Google Gemini
)

// All lists the dialects, as the config names them.
var All = []Dialect{Chat, Responses, Messages, Gemini}

// Credential returns the header field that carries the key in this dialect, and what stands before the key in it.
func (d Dialect) Credential() (field, prefix string) {
	switch d {
	case Messages:
		return "X-Api-Key", ""
	case Gemini:
		return "X-Goog-Api-Key", ""
	}
	return "Authorization", "Bearer "
}

// Signal is what one event of a stream tells; several bits may be set.
type Signal uint8

const (
	// Content: the event carries something the caller waits for (text, reasoning, a tool call, a refusal, audio …).
	Content Signal = 1 << iota
	// Finished: the answer is evidently complete (a finish or stop reason was given), though the marker may still come.
	Finished
	// Terminal: the dialect's terminal marker; nothing follows it.
	Terminal
	// Failed: the event is an error.
	Failed
)

// Event judges one event by its name ("" if it has none) and its data. Comments, pings, preambles and empty deltas
// give no signal at all.
func (d Dialect) Event(name string, data []byte) Signal {
	if name == "error" {
		return Failed
	}
	data = bytes.TrimSpace(data)
	if d != Gemini && string(data) == "[DONE]" {
		return Terminal
	}
	r, f := reader{b: data}, finding{}
	switch d {
	case Messages:
		f.messagesEvent(&r, name)
	case Responses:
		f.responsesEvent(&r, name)
	default: // whole answers and chunks have one shape
		f.answers(&r, d)
	}
	s := f.signal
	if f.failed() {
		// What else a failed event carries is no answer.
		s = s&Terminal | Failed
	}
	// The reader is lenient; the clients are not. (It also bounded the depth, down which gjson goes recursively.)
	if s == 0 || !r.ended() || !gjson.ValidBytes(data) {
		return 0
	}
	return s
}

// Body is what a whole non-stream answer with a success status tells.
type Body uint8

const (
	BodyGood    Body = iota // an answer
	BodyEmpty               // the dialect's envelope with nothing usable in it, or nothing at all
	BodyFailed              // an error object under a success status
	BodyForeign             // not what this dialect answers with: no JSON, HTML, another envelope
	BodyCut                 // the beginning of an answer that broke off
)

// Body judges the whole body of a non-stream answer with a success status.
func (rt Route) Body(data []byte) Body {
	r, f := reader{b: bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))}, finding{}
	first := r.peek()
	switch {
	case first == '{' || first == '[':
	case !rt.Generates && !rt.JSON:
		return BodyGood
	case r.i == len(r.b):
		return BodyEmpty
	default:
		return BodyForeign
	}
	if !rt.Generates {
		f.answers(&r, errorsOnly)
		switch {
		case r.ended() && f.failed() && !f.record:
			return BodyFailed
		case rt.JSON && r.fault == cut:
			return BodyCut
		}
		return BodyGood
	}
	f.answers(&r, rt.Dialect)
	switch {
	case r.fault == cut:
		return BodyCut
	case !r.ended():
		return BodyForeign
	case f.failed():
		return BodyFailed
	case !f.envelope, first == '[' && rt.Dialect != Gemini:
		return BodyForeign
	case f.signal&Content == 0:
		return BodyEmpty
	}
	return BodyGood
}
