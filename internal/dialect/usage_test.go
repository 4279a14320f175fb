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
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		what    string
		dialect Dialect
		parts   []string
		want    Usage
	}{
		{"chat", Chat, []string{`{"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":30,"total_tokens":42}}`}, Usage{12, 30}},
		{"a stream's last chunk", Chat, []string{`{"choices":[{}],"usage":null}`, `{"choices":[],"usage" : {"prompt_tokens":5,"completion_tokens":7}}`}, Usage{5, 7}},
		{"Groq's last chunk", Chat, []string{`{"choices":[{}],"x_groq":{"id":"r","usage":{"prompt_tokens":5,"completion_tokens":7}}}`}, Usage{5, 7}},
		{"embeddings", Chat, []string{`{"data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}`}, Usage{8, 0}},
		{"images", Chat, []string{`{"data":[],"usage":{"input_tokens":8,"output_tokens":4000}}`}, Usage{8, 4000}},
		{"messages, in two events", Messages, []string{
			`{"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}`, `{"type":"message_delta","usage":{"output_tokens":15}}`,
		}, Usage{25, 15}},
		{"responses", Responses, []string{`{"response":{"usage":{"input_tokens":3,"input_tokens_details":{"cached_tokens":0},"output_tokens":4}}}`}, Usage{3, 4}},
		{"gemini, growing", Gemini, []string{
			`{"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":2}}`, `{"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":9,"thoughtsTokenCount":20}}`,
		}, Usage{4, 29}},
		{"none", Chat, []string{`{"choices":[]}`, `[DONE]`}, Usage{}},
		{"in a text", Chat, []string{`{"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":99}"}}]}`}, Usage{}},
		{"in a tool's input", Messages, []string{`{"content":[{"type":"tool_use","input":{"usage":{"input_tokens":1000,"output_tokens":2000}}}],"usage":{"input_tokens":4,"output_tokens":6}}`}, Usage{4, 6}},
		{"in a function's arguments", Gemini, []string{`{"candidates":[{"content":{"parts":[{"functionCall":{"args":{"usageMetadata":{"promptTokenCount":1000}}}}]}}],"usageMetadata":{"promptTokenCount":4}}`}, Usage{4, 0}},
		{"in the caller's own tools", Responses, []string{`{"type":"response.completed","response":{"tools":[{"parameters":{"usage":{"input_tokens":5000}}}],"usage":{"input_tokens":8,"output_tokens":1}}}`}, Usage{8, 1}},
		{"not the last of that name", Chat, []string{`{"usage":{"prompt_tokens":5,"completion_tokens":7},"extra":{"usage":{"prompt_tokens":1000}}}`}, Usage{5, 7}},
		{"brackets in a text", Chat, []string{`{"usage":{"prompt_tokens":5},"a":"}]\"}","b":[{}]}`}, Usage{5, 0}},
		{"no figures", Chat, []string{`{"usage":{"prompt_tokens":"many","completion_tokens":-3}}`, `{"usage":{"prompt_tokens":1e30,"completion_tokens":99999999999999999999}}`}, Usage{}},
		{"a fraction", Chat, []string{`{"usage":{"prompt_tokens":2.5}}`}, Usage{2, 0}},
		{"nonsense", Chat, []string{``, `"usage"`, `"usage":`, `"usage":{`, `"usage":[1]`}, Usage{}},
		{"another dialect", "none", []string{`{"usage":{"prompt_tokens":1}}`}, Usage{}},
	} {
		var got Usage
		for _, p := range tc.parts {
			got.Look(tc.dialect, []byte(p))
		}
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.what, got, tc.want)
		}
	}
}

// FuzzUsage: no piece of any answer is too odd, and no number negative.
func FuzzUsage(f *testing.F) {
	f.Add([]byte(`{"usage":{"prompt_tokens":12,"completion_tokens":30}}`))
	f.Add([]byte(`{"usageMetadata":{"promptTokenCount":4}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, d := range All {
			var u Usage
			if u.Look(d, b); u.Input < 0 || u.Output < 0 {
				t.Errorf("%+v", u)
			}
		}
	})
}

func BenchmarkUsageOfEventWithout(b *testing.B) {
	event := []byte("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello there\"}}]}\n\n")
	var u Usage
	b.ReportAllocs()
	for b.Loop() {
		u.Look(Chat, event)
	}
}

// BenchmarkUsageOfAnswer: a whole answer of 4 KB.
func BenchmarkUsageOfAnswer(b *testing.B) {
	answer := []byte(`{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("hello there ", 340) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":30,"total_tokens":42}}`)
	var u Usage
	b.ReportAllocs()
	for b.Loop() {
		u.Look(Chat, answer)
	}
}
