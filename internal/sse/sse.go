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

import "bytes"

// window bounds how far one search for a line end looks, so that a stream of lone CRs is not searched to its end for
// an LF again at each line.
const window = 1024

var bom = []byte("\xef\xbb\xbf")

// Next returns the length of the first whole event in b, through the blank line that ends it, or 0 if b holds none.
// Line ends are LF, CRLF or a lone CR. A CR at the very end of b counts as a line end; the LF that may still follow
// it then begins the next event, where it is harmless.
func Next(b []byte) int {
	for i := 0; i < len(b); {
		n := lineEnd(b[i:])
		if n < 0 {
			return 0
		}
		after := afterLine(b, i+n)
		if n == 0 {
			return after
		}
		i = after
	}
	return 0
}

// Last returns the length of the longest prefix of b that ends at an event boundary, or 0. Like Next it takes b to
// begin at the beginning of a line.
func Last(b []byte) int {
	for end := lastLineEnd(b) + 1; end > 0; {
		start := end - 1 // of the line end that stops at end
		if b[start] == '\n' && start > 0 && b[start-1] == '\r' {
			start--
		}
		if start == 0 || isLineEnd(b[start-1]) {
			return end
		}
		end = lastLineEnd(b[:start]) + 1
	}
	return 0
}

// Event is one event. Data aliases the stream's bytes where it has one data line, else it is joined with LF in buf.
type Event struct {
	Name string
	Data []byte
}

// Parse reads one event as cut by Next; a byte order mark before it is ignored. An event of comments only, or one
// without data, has neither Name nor Data.
func Parse(raw, buf []byte) Event {
	var name, data []byte
	lines := 0 // with data
	for raw = bytes.TrimPrefix(raw, bom); len(raw) > 0; {
		line := raw
		if n := lineEnd(raw); n >= 0 {
			line, raw = raw[:n], raw[afterLine(raw, n):]
		} else {
			raw = nil
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = value
		case "data":
			switch lines++; lines {
			case 1:
				data = value
			case 2:
				data = append(append(append(buf[:0], data...), '\n'), value...)
			default:
				data = append(append(data, '\n'), value...)
			}
		}
	}
	if lines == 0 {
		return Event{}
	}
	if data == nil {
		data = []byte{}
	}
	return Event{Name: string(name), Data: data}
}

// lineEnd returns the index of the first CR or LF in b, or -1.
func lineEnd(b []byte) int {
	for at := 0; at < len(b); at += window {
		w := b[at:min(at+window, len(b))]
		lf := bytes.IndexByte(w, '\n')
		if lf >= 0 {
			w = w[:lf]
		}
		if cr := bytes.IndexByte(w, '\r'); cr >= 0 {
			return at + cr
		}
		if lf >= 0 {
			return at + lf
		}
	}
	return -1
}

// lastLineEnd returns the index of the last CR or LF in b, or -1.
func lastLineEnd(b []byte) int {
	// bytes.LastIndexByte looks at one byte after the other: leave out what holds no line end first.
	for len(b) > window {
		w := b[len(b)-window:]
		if bytes.IndexByte(w, '\n') >= 0 || bytes.IndexByte(w, '\r') >= 0 {
			break
		}
		b = b[:len(b)-window]
	}
	for i := len(b) - 1; i >= 0; i-- {
		if isLineEnd(b[i]) {
			return i
		}
	}
	return -1
}

// afterLine returns the index after the line end at b[i].
func afterLine(b []byte, i int) int {
	if b[i] == '\r' && i+1 < len(b) && b[i+1] == '\n' {
		return i + 2
	}
	return i + 1
}

func isLineEnd(c byte) bool { return c == '\n' || c == '\r' }
