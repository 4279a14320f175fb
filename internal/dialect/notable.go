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

// Notable reports whether a piece of a stream, which begins and ends at event boundaries, may hold an event that is
// Finished, Terminal or Failed. It is a cheap search: false is certain, true is not.
func (d Dialect) Notable(piece []byte) bool {
	for len(piece) > 0 {
		line := piece
		if n := bytes.IndexByte(piece, '\n'); n >= 0 {
			line, piece = piece[:n], piece[n+1:]
		} else {
			piece = nil
		}
		// A lone CR ends a line as well.
		for cr := bytes.IndexByte(line, '\r'); cr >= 0; cr = bytes.IndexByte(line, '\r') {
			if d.notableLine(line[:cr]) {
				return true
			}
			line = line[cr+1:]
		}
		if d.notableLine(line) {
			return true
		}
	}
	return false
}

func (d Dialect) notableLine(line []byte) bool {
	line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
		return d.notableData(data)
	}
	if name, ok := bytes.CutPrefix(line, []byte("event:")); ok {
		return d.notableWord(bytes.TrimPrefix(name, []byte(" ")))
	}
	// Some servers put an error into a stream as JSON without a field, or under one of that name.
	return bytes.HasPrefix(line, []byte("error:")) || d.notableData(line)
}

// notableData looks at the strings of one line of JSON: no string goes on in the next line. What generated text says
// stays inside its own string and is not looked at.
func (d Dialect) notableData(data []byte) bool {
	quote := bytes.IndexByte(data, '"')
	if quote < 0 {
		return bytes.Contains(data, []byte("[DONE]"))
	}
	for quote >= 0 {
		end := closingQuote(data, quote+1)
		if end < 0 {
			return false
		}
		word := data[quote+1 : end]
		data = data[end+1:]
		if d.notableWord(word) && !nothingFollows(data) {
			return true
		}
		quote = bytes.IndexByte(data, '"')
	}
	return false
}

// notableWord reports whether a key, a value or an event's name stands in every event that Event calls Finished,
// Terminal or Failed for it.
func (d Dialect) notableWord(word []byte) bool {
	switch string(word) {
	// The vendors' errors, see finding.member.
	case "error", "code", "error_code", "success", "status_code", "Response":
		return true
	case "finish_reason":
		return d != Messages && d != Responses && d != Gemini
	case "stop_reason", "message_stop":
		return d == Messages
	case "response.completed", "response.done", "response.incomplete", "response.failed", "response.cancelled":
		return d == Responses
	case "finishReason", "blockReason":
		return d == Gemini
	}
	return false
}

// nothingFollows reports whether what stands before data was a key whose value is null, an empty string or 0, as in
// every ordinary chunk of a chat.
func nothingFollows(data []byte) bool {
	data = trimBlank(data)
	if len(data) == 0 || data[0] != ':' {
		return false
	}
	data = trimBlank(data[1:])
	if len(data) > 1 && data[0] == '0' {
		return !isScalar(data[1])
	}
	return bytes.HasPrefix(data, []byte("null")) || bytes.HasPrefix(data, []byte(`""`))
}

func trimBlank(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}
