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

// usageFields are the members that hold it: of Gemini's usageMetadata, and of the others' usage.
var usageFields = map[Dialect]struct {
	object        []byte
	input, output []string
}{
	Chat:      {[]byte(`"usage"`), []string{"prompt_tokens", "input_tokens"}, []string{"completion_tokens", "output_tokens"}},
	Responses: {[]byte(`"usage"`), []string{"input_tokens"}, []string{"output_tokens"}},
	Messages:  {[]byte(`"usage"`), []string{"input_tokens"}, []string{"output_tokens"}},
	Gemini:    {[]byte(`"usageMetadata"`), []string{"promptTokenCount"}, []string{"candidatesTokenCount", "thoughtsTokenCount"}},
}

// Look looks for it in a body, or in events of a stream. Where there is none it costs a search for a word.
func (u *Usage) Look(d Dialect, b []byte) {
	fields := usageFields[d]
	for len(fields.object) > 0 {
		at := bytes.Index(b, fields.object)
		if at < 0 {
			return
		}
		quoted := at > 0 && b[at-1] == '\\' // it stands in a text
		b = b[at+len(fields.object):]
		rest := bytes.TrimLeft(b, " \t\r\n:")
		if quoted || len(rest) == 0 || rest[0] != '{' {
			continue
		}
		u.Input = max(u.Input, largest(rest, fields.input))
		u.Output = max(u.Output, sum(d, rest, fields.output))
	}
}

// largest is the largest of some members.
func largest(object []byte, members []string) (n int64) {
	for _, m := range members {
		n = max(n, gjson.GetBytes(object, m).Int())
	}
	return n
}

// sum is Gemini's output, whose thoughts are told apart; of other dialects' fields only one is there.
func sum(d Dialect, object []byte, members []string) (n int64) {
	if d != Gemini {
		return largest(object, members)
	}
	for _, m := range members {
		n += max(gjson.GetBytes(object, m).Int(), 0)
	}
	return n
}
