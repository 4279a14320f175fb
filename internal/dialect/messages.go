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

package dialect

// messages reads a whole answer.
func (f *finding) messages(r *reader) {
	if !r.enter('{') {
		return
	}
	for key, ok := r.member(); ok; key, ok = r.member() {
		switch string(key) {
		case "content":
			if f.list(r) {
				for r.element() {
					f.answered = true
					f.block(r)
				}
			}
		case "stop_reason":
			f.finish(r.skip())
		default:
			f.member(key, r)
		}
	}
}

// messagesEvent reads one event of a stream. Its type is in its data; the event's name is the second best.
func (f *finding) messagesEvent(r *reader, name string) {
	if !r.enter('{') {
		return
	}
	var kind, delta, block []byte
	for key, ok := r.member(); ok; key, ok = r.member() {
		switch string(key) {
		case "type":
			kind = text(r.skip())
		case "delta":
			delta = r.skip()
		case "content_block":
			block = r.skip()
		default:
			f.member(key, r)
		}
	}
	if len(kind) > 0 {
		name = string(kind)
	}
	f.answered = name != ""
	switch name {
	case "content_block_start":
		f.block(&reader{b: block})
	case "content_block_delta":
		if (&reader{b: delta}).anyFilled("type") {
			f.signal |= Content
		}
	case "message_delta":
		r := reader{b: delta}
		if r.enter('{') {
			for key, ok := r.member(); ok; key, ok = r.member() {
				if v := r.skip(); string(key) == "stop_reason" {
					f.finish(v)
				}
			}
		}
	case "message_stop":
		f.signal |= Terminal
	case "error":
		f.failure = true
	}
}

// block reads a content block. Text and thinking begin empty and are filled by deltas; all other blocks (tool calls,
// results of server tools, redacted thinking …) are content by being there.
func (f *finding) block(r *reader) {
	if !r.enter('{') {
		return
	}
	grows, some := true, false
	for key, ok := r.member(); ok; key, ok = r.member() {
		v := r.skip()
		switch string(key) {
		case "type":
			grows = string(v) == `"text"` || string(v) == `"thinking"`
		default:
			some = some || filled(v)
		}
	}
	if r.fault == sound && (some || !grows) {
		f.signal |= Content
	}
}
