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

// finding is what was found in one event or body.
type finding struct {
	signal   Signal
	envelope bool // the dialect's own container is there
	answered bool // and it is not empty

	// What the top level says about a failure.
	failure      bool // an error that nothing else is needed for
	named        bool // "type" or "object" is "error"
	unsuccessful bool // "success" is false
	code         bool // "code", "message", "error_code", "error_msg" hold something that is no success
	message      bool
	errorCode    bool
	errorMsg     bool

	record bool // an object with its own state: an error in it is what befell a job, not this call
}

// failed reports whether this is an error. Beside an answer only an outright error counts.
func (f *finding) failed() bool {
	if f.failure || f.signal&Failed != 0 {
		return true
	}
	return !f.answered && (f.named || f.unsuccessful || f.code && f.message || f.errorCode && f.errorMsg)
}

// errorsOnly stands for answers of any shape, which are judged for errors only.
const errorsOnly Dialect = "errors only"

// answers reads an answer, or an array of them, as Gemini sends both.
func (f *finding) answers(r *reader, d Dialect) {
	if r.peek() != '[' {
		f.answer(r, d)
		return
	}
	r.enter('[')
	for r.element() {
		f.answer(r, d)
	}
}

func (f *finding) answer(r *reader, d Dialect) {
	switch d {
	case errorsOnly:
		f.other(r)
	case Messages:
		f.messages(r)
	case Responses:
		f.responses(r)
	case Gemini:
		f.gemini(r)
	default:
		f.chat(r)
	}
}

// list enters the list that is a dialect's envelope. Servers written in Go send null for an empty one.
func (f *finding) list(r *reader) bool {
	switch r.peek() {
	case '[', 'n':
		f.envelope = true
	}
	return r.enter('[')
}

// other reads an answer of any shape, as far as it must.
func (f *finding) other(r *reader) {
	if !r.enter('{') {
		return
	}
	for key, ok := r.member(); ok && !f.record; key, ok = r.member() {
		f.member(key, r)
	}
}

// member reads a member of the top level that the dialect has no use for.
func (f *finding) member(key []byte, r *reader) {
	switch string(key) {
	case "error":
		f.failure = filled(r.skip()) || f.failure
	case "type", "object":
		v := text(r.skip())
		if string(v) == "error" {
			f.named = true
		} else if string(key) == "object" && len(v) > 0 {
			f.record = true
		}
	case "done", "custom_id":
		r.skip()
		f.record = true
	case "success":
		f.unsuccessful = string(r.skip()) == "false"
	case "code":
		f.code = isErrorCode(r.skip())
	case "message", "msg":
		f.message = filled(r.skip()) || f.message
	case "error_code": // Baidu
		f.errorCode = isErrorCode(r.skip())
	case "error_msg":
		f.errorMsg = filled(r.skip())
	case "base_resp": // MiniMax
		f.inside(r, "status_code")
	case "Response": // Tencent
		f.inside(r, "Error")
	default:
		r.skip()
	}
}

// inside reads a vendor's own frame, in which one member says that the call failed.
func (f *finding) inside(r *reader, name string) {
	if !r.enter('{') {
		return
	}
	for key, ok := r.member(); ok; key, ok = r.member() {
		if v := r.skip(); string(key) == name && filled(v) {
			f.failure = true
		}
	}
}

// isErrorCode reports whether the value of a "code" member is not one of those that mean success.
func isErrorCode(v []byte) bool {
	if !filled(v) {
		return false
	}
	for _, fine := range []string{"200", "0", "ok", "success"} {
		if bytes.EqualFold(bytes.Trim(v, `"`), []byte(fine)) {
			return false
		}
	}
	return true
}

// finish notes why an answer ended. A reason other than the natural end makes even an empty answer an answer: asked
// again, the model would only do the same.
func (f *finding) finish(reason []byte) {
	switch {
	case !filled(reason):
	case isBrokenOff(text(reason)):
		f.signal |= Failed
	case isNaturalEnd(text(reason)):
		f.signal |= Finished
	default:
		f.signal |= Finished | Content
	}
}

// isNaturalEnd knows the reasons for an end that say nothing about an empty answer. MALFORMED_… and
// UNEXPECTED_TOOL_CALL are slips of the model, which it seldom repeats.
func isNaturalEnd(reason []byte) bool {
	switch string(reason) {
	case "stop", "STOP", "end_turn", "stop_sequence", "eos", "eos_token", "completed",
		"FINISH_REASON_UNSPECIFIED", "UNEXPECTED_TOOL_CALL":
		return true
	}
	return bytes.HasPrefix(reason, []byte("MALFORMED_"))
}

// isBrokenOff knows the reasons for an end that are the server's fault: OpenRouter's error, Zhipu's network_error,
// DeepSeek's insufficient_system_resource, vLLM's abort.
func isBrokenOff(reason []byte) bool {
	switch string(reason) {
	case "error", "insufficient_system_resource", "abort":
		return true
	}
	return bytes.HasSuffix(reason, []byte("_error"))
}
