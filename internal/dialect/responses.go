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

import "strings"

// responses reads a response object: a whole answer, or what an event tells of it.
func (f *finding) responses(r *reader) {
	if !r.enter('{') {
		return
	}
	for key, ok := r.member(); ok; key, ok = r.member() {
		switch string(key) {
		case "output":
			if f.list(r) {
				for r.element() {
					f.answered = true
					f.item(r)
				}
			}
		case "status":
			switch string(text(r.skip())) {
			case "completed":
				f.envelope = true
			case "incomplete", "queued", "in_progress":
				// The last two are background jobs, whose output is asked for later.
				f.envelope = true
				f.signal |= Content
			case "failed", "cancelled":
				f.failure = true
			}
		default:
			f.member(key, r)
		}
	}
}

// responsesEvent reads one event of a stream. Its type is in its data; the event's name is the second best.
func (f *finding) responsesEvent(r *reader, name string) {
	if !r.enter('{') {
		return
	}
	var kind, response, item, part []byte
	some := false // of what deltas and finished parts hold
	for key, ok := r.member(); ok; key, ok = r.member() {
		switch string(key) {
		case "type":
			kind = text(r.skip())
		case "response":
			response = r.skip()
		case "item":
			item = r.skip()
		case "part":
			part = r.skip()
		case "delta", "text", "refusal", "arguments", "input", "code", "transcript", "annotation", "partial_image_b64":
			some = filled(r.skip()) || some
		default:
			f.member(key, r)
		}
	}
	if len(kind) > 0 {
		name = string(kind)
	}
	f.answered = name != ""
	switch name {
	case "response.completed", "response.done":
		var whole finding
		whole.responses(&reader{b: response})
		f.failure = f.failure || whole.failed()
		f.signal |= Terminal | Finished | whole.signal&Content
	case "response.incomplete":
		f.signal |= Terminal | Finished | Content
	case "response.cancelled":
		f.signal |= Terminal | Failed
	case "response.failed", "error":
		f.signal |= Failed
	case "response.output_item.added", "response.output_item.done":
		f.item(&reader{b: item})
	default:
		if part != nil {
			f.part(&reader{b: part})
		}
		if some && strings.HasPrefix(name, "response.") {
			f.signal |= Content
		}
	}
}

// item reads an output item. Messages and reasoning begin empty and are filled by deltas; all other items (calls of
// functions and of server tools …) are content by being there. Encrypted reasoning alone is of no use to a caller, and
// the list of an MCP server's tools is a mere preamble.
func (f *finding) item(r *reader) {
	if !r.enter('{') {
		return
	}
	grows := true
	for key, ok := r.member(); ok; key, ok = r.member() {
		switch string(key) {
		case "type":
			switch string(text(r.skip())) {
			case "message", "reasoning", "mcp_list_tools":
			default:
				grows = false
			}
		case "content", "summary":
			if r.enter('[') {
				for r.element() {
					f.part(r)
				}
			}
		default:
			r.skip()
		}
	}
	if r.fault == sound && !grows {
		f.signal |= Content
	}
}

// part reads a part of a message's or a reasoning's content.
func (f *finding) part(r *reader) {
	if r.anyFilled("type", "annotations", "logprobs") {
		f.signal |= Content
	}
}
