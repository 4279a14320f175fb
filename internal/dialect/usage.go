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

import (
	"bytes"

	"github.com/tidwall/gjson"
)

// Usage is how many tokens an answer says that it took. Streams say it once or again and again, each time for all of
// what has come, so of several the largest counts.
type Usage struct{ Input, Output int64 }

// usageFields are the members that hold it, and where they are: what a model or a caller says is not looked into.
var usageFields = map[Dialect]struct {
	word          []byte
	paths         []string
	input, output []string
}{
	Chat:      {[]byte(`"usage"`), []string{"usage", "x_groq.usage"}, []string{"prompt_tokens", "input_tokens"}, []string{"completion_tokens", "output_tokens"}},
	Responses: {[]byte(`"usage"`), []string{"usage", "response.usage"}, []string{"input_tokens"}, []string{"output_tokens"}},
	Messages:  {[]byte(`"usage"`), []string{"usage", "message.usage"}, []string{"input_tokens"}, []string{"output_tokens"}},
	Gemini:    {[]byte(`"usageMetadata"`), []string{"usageMetadata"}, []string{"promptTokenCount"}, []string{"candidatesTokenCount", "thoughtsTokenCount"}},
}

// mostTokens is more than any answer takes: a larger figure is none, and would spoil all sums for good.
const mostTokens = 1e9

// MayHaveUsage is a cheap search of an answer, or a part of one, for what [Usage.Look] looks for.
func MayHaveUsage(d Dialect, b []byte) bool {
	word := usageFields[d].word
	for len(word) > 0 {
		at := bytes.Index(b, word)
		if at < 0 {
			return false
		}
		if valueOf(b, at, word) != nil {
			return true
		}
		b = b[at+len(word):]
	}
	return false
}

// valueOf returns what follows the name of a member, if that is an object and the name does not stand in a text.
func valueOf(b []byte, at int, name []byte) []byte {
	value := bytes.TrimLeft(b[at+len(name):], " \t\r\n:")
	if at > 0 && b[at-1] == '\\' || len(value) == 0 || value[0] != '{' {
		return nil
	}
	return value
}

// Look looks for it in a JSON document: a body, or the data of an event.
func (u *Usage) Look(d Dialect, document []byte) {
	if u.LookAtEnd(d, document[max(0, len(document)-MaxTail):]) || !MayHaveUsage(d, document) {
		return
	}
	for _, path := range usageFields[d].paths {
		if object := gjson.GetBytes(document, path); object.IsObject() {
			u.add(d, []byte(object.Raw))
		}
	}
}

// MaxTail is how much of an answer's end is worth a look of its own, in bytes.
const MaxTail = 1 << 10

// LookAtEnd looks for it in the end of a JSON document, and reports whether it is there. Nearly always it is the last of its
// name and at the top; then what is before it, which may be long, need not be read.
func (u *Usage) LookAtEnd(d Dialect, end []byte) bool {
	word := usageFields[d].word
	at := bytes.LastIndex(end, word)
	if len(word) == 0 || at < 0 {
		return false
	}
	value := valueOf(end, at, word)
	if value == nil || depth(value) != 1 {
		return false
	}
	u.add(d, value)
	return true
}

// depth is how many brackets are open where a piece of JSON begins, which is not in a text: those that its rest closes.
func depth(rest []byte) (closed int) {
	inText := false
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			closed--
		case c == '}' || c == ']':
			closed++
		}
	}
	return closed
}

// add takes an object's figures; what follows the object does not matter.
func (u *Usage) add(d Dialect, object []byte) {
	fields := usageFields[d]
	u.Input = max(u.Input, tokens(object, fields.input, false))
	u.Output = max(u.Output, tokens(object, fields.output, d == Gemini)) // whose thoughts are told apart
}

// tokens is the first figure that is there of several members, or the sum of all.
func tokens(object []byte, members []string, all bool) (sum int64) {
	for _, m := range members {
		n := gjson.GetBytes(object, m)
		if n.Type != gjson.Number || !(n.Num >= 0 && n.Num <= mostTokens) {
			continue
		}
		sum += int64(n.Num)
		if !all {
			break
		}
	}
	return sum
}
