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

// Route is what a request's method and path say about it.
type Route struct {
	Dialect Dialect

	// Generates: answers hold generated content and are judged for it. Other answers are judged for errors only.
	Generates bool

	// Repeatable: to send it again does no harm even if the first one was carried out. (Whether the body asks for
	// a background job, which is not, the path cannot tell.)
	Repeatable bool

	// Stream: the path itself asks for a stream.
	Stream bool

	// Model is the model that the path names, unescaped, and ModelAt where it stands in the escaped path.
	Model   string
	ModelAt [2]int
}

// RouteOf reads a request's method and escaped path. The version segment may be any, or missing.
func RouteOf(method, escapedPath string) Route { return Route{} }

// Credential returns the header field that carries the key in this dialect, and what stands before the key in it.
func (d Dialect) Credential() (field, prefix string) { return "", "" }

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
func (d Dialect) Event(name string, data []byte) Signal { return 0 }

// Notable reports whether a piece of a stream, which begins and ends at event boundaries, may hold an event that is
// Finished, Terminal or Failed. It is a cheap search: false is certain, true is not.
func (d Dialect) Notable(piece []byte) bool { return true }

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
func (rt Route) Body(data []byte) Body { return BodyGood }
