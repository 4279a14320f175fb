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

import "bytes"

// gemini reads a chunk, or a whole answer.
func (f *finding) gemini(r *reader) {
	if !r.enter('{') {
		return
	}
	for key, ok := r.member(); ok; key, ok = r.member() {
		switch string(key) {
		case "candidates":
			f.envelope = true
			if r.enter('[') {
				for r.element() {
					f.answered = true
					f.candidate(r)
				}
			}
		case "promptFeedback":
			f.envelope = true
			f.promptFeedback(r)
		case "usageMetadata", "modelVersion":
			r.skip()
			f.envelope = true
		default:
			f.member(key, r)
		}
	}
}

func (f *finding) candidate(r *reader) {
	if !r.enter('{') {
		return
	}
	for key, ok := r.member(); ok; key, ok = r.member() {
		switch string(key) {
		case "content":
			f.parts(r)
		case "finishReason":
			f.finish(r.skip())
		default:
			r.skip()
		}
	}
}

func (f *finding) parts(r *reader) {
	if !r.enter('{') {
		return
	}
	for key, ok := r.member(); ok; key, ok = r.member() {
		if string(key) != "parts" {
			r.skip()
			continue
		}
		if r.enter('[') {
			for r.element() {
				if r.anyFilled("thought") { // a mere flag
					f.signal |= Content
				}
			}
		}
	}
}

// promptFeedback reads what the filter said of the prompt. A block is an answer: a refusal.
func (f *finding) promptFeedback(r *reader) {
	if !r.enter('{') {
		return
	}
	for key, ok := r.member(); ok; key, ok = r.member() {
		v := r.skip()
		if string(key) == "blockReason" && filled(v) && !bytes.Contains(v, []byte("UNSPECIFIED")) {
			f.signal |= Content | Finished
		}
	}
}
