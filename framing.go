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

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
	"github.com/llmfailover/caddy-llm-failover/internal/sse"
)

// framing is how the events of a stream are told apart.
type framing struct {
	// mayEnd reports whether b may complete an event; if not, a long one need not be searched again from its start.
	mayEnd func(b []byte) bool
	// next is the length of the first whole event, last that of all whole ones; 0 if there is none.
	next, last func(b []byte) int
	// data is what an event says, read that and what it means.
	data func(raw []byte) []byte
	read func(d dialect.Dialect, raw []byte) (data []byte, signal dialect.Signal)
	// notable reports whether whole events may mean anything but content.
	notable func(d dialect.Dialect, events []byte) bool
	// write words a refusal as an event.
	write func(f *refusal, d dialect.Dialect) []byte
	// tail: what is left at the stream's end is an event, too.
	tail bool
}

// eventStream is text/event-stream.
var eventStream = &framing{
	mayEnd: func(b []byte) bool { return bytes.IndexByte(b, '\n') >= 0 || bytes.IndexByte(b, '\r') >= 0 },
	next:   sse.Next,
	last:   sse.Last,
	data:   func(raw []byte) []byte { return sse.Parse(raw, nil).Data },
	read: func(d dialect.Dialect, raw []byte) ([]byte, dialect.Signal) {
		ev := sse.Parse(raw, nil)
		if ev.Data == nil {
			// Some servers put an error into a stream as a line of JSON, or (llama.cpp) under a field name of its own.
			if name, data := unframed(raw); data != nil {
				return data, d.Event(name, data) & dialect.Failed
			}
		}
		return ev.Data, d.Event(ev.Name, ev.Data)
	},
	notable: dialect.Dialect.Notable,
	write:   (*refusal).event,
	tail:    true, // without the blank line after it
}

// unframed returns the JSON that comes as a line of its own, or under llama.cpp's field name `error`.
func unframed(raw []byte) (name string, data []byte) {
	raw = bytes.TrimSpace(raw)
	if field, ok := bytes.CutPrefix(raw, []byte("error:")); ok {
		name, raw = "error", bytes.TrimSpace(field)
	}
	if len(raw) > 0 && raw[0] == '{' {
		return name, raw
	}
	return "", nil
}

// elements is a JSON array that comes bit by bit, as Gemini streams unless it is asked for alt=sse. Its end is the
// closing bracket: no answer is complete without it, whatever its finish reason, and nothing after it is waited for.
var elements = &framing{
	mayEnd: func(b []byte) bool { return bytes.IndexByte(b, '}') >= 0 || bytes.IndexByte(b, ']') >= 0 },
	next:   dialect.NextElement,
	last: func(b []byte) (n int) {
		for size := dialect.NextElement(b); size > 0; size = dialect.NextElement(b[n:]) {
			n += size
		}
		return n
	},
	data: dialect.Element,
	read: func(d dialect.Dialect, raw []byte) ([]byte, dialect.Signal) {
		data := dialect.Element(raw)
		if len(data) == 0 {
			return nil, dialect.Terminal
		}
		return data, d.Event("", data) &^ dialect.Finished
	},
	notable: func(dialect.Dialect, []byte) bool { return true }, // few and large: each is looked at
	write:   (*refusal).element,
}
