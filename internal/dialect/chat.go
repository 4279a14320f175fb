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

// chat reads a chunk, or a whole answer, of chat completions and legacy completions.
func (f *finding) chat(r *reader) {
	if !r.enter('{') {
		return
	}
	for key, ok := r.member(); ok; key, ok = r.member() {
		if string(key) != "choices" {
			f.member(key, r)
			continue
		}
		if f.list(r) {
			for r.element() {
				f.answered = true
				f.choice(r)
			}
		}
	}
}

func (f *finding) choice(r *reader) {
	if !r.enter('{') {
		return
	}
	for key, ok := r.member(); ok; key, ok = r.member() {
		switch string(key) {
		case "delta", "message":
			f.delta(r)
		case "text":
			if filled(r.skip()) {
				f.signal |= Content
			}
		case "finish_reason":
			f.finish(r.skip())
		case "error":
			f.failure = filled(r.skip()) || f.failure
		default:
			r.skip()
		}
	}
}

// delta reads a choice's delta or whole message.
func (f *finding) delta(r *reader) {
	if !r.enter('{') {
		return
	}
	for key, ok := r.member(); ok; key, ok = r.member() {
		found := false
		switch string(key) {
		case "content", "reasoning_details", "thinking_blocks":
			// A string, or a list of parts that may all be empty.
			if r.peek() != '[' {
				found = filled(r.skip())
				break
			}
			r.enter('[')
			for r.element() {
				if r.peek() == '"' {
					found = filled(r.skip()) || found
				} else {
					found = r.anyFilled("type", "index", "id", "format", "role") || found
				}
			}
		case "tool_calls", "function_call", "refusal", "reasoning", "reasoning_content", "reasoning_text", "thinking",
			"audio", "images", "annotations", "executed_tools":
			found = filled(r.skip())
		default:
			r.skip()
		}
		if found {
			f.signal |= Content
		}
	}
}
