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

// Package sse reads event streams (https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream)
// without changing a byte of them.
package sse

// Next returns the length of the first whole event in b, through the blank line that ends it, or 0 if b holds none.
// Line ends are LF, CRLF or a lone CR. A CR at the very end of b counts as a line end; the LF that may still follow
// it then begins the next event, where it is harmless.
func Next(b []byte) int { return 0 }

// Last returns the length of the longest prefix of b that ends at an event boundary, or 0.
func Last(b []byte) int { return 0 }

// Event is one event. Data aliases the stream's bytes where it has one data line, else it is joined with LF in buf.
type Event struct {
	Name string
	Data []byte
}

// Parse reads one event as cut by Next; a byte order mark before it is ignored. An event of comments only, or one
// without data, has neither Name nor Data.
func Parse(raw, buf []byte) Event { return Event{} }
