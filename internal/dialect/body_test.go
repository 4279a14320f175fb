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

// longChat is a good answer of ordinary size.
var longChat = `{"id":"chatcmpl-123","object":"chat.completion","created":1694268190,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"` +
	strings.Repeat(`He said: \"an error\", and went on.\n`, 30) +
	`","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}},"service_tier":"default","system_fingerprint":"fp_1"}`

var bodies = []struct {
	d    Dialect
	body string
	want Body
}{
	{Chat, longChat, BodyGood},
	{Chat, "\ufeff \n" + longChat + "\n\n", BodyGood},
	{Chat, `{"error":null,"choices":[{"message":{"content":"x"}}]}`, BodyGood},
	{Chat, `{"choices":[{"text":"x","finish_reason":"stop"}]}`, BodyGood},
	{Chat, `{"choices":[{"message":{"content":null,"tool_calls":[{"id":"1"}]},"finish_reason":"stop"}]}`, BodyGood},
	{Chat, `{"choices":[{"message":{"content":[{"type":"text","text":"x"}]}}]}`, BodyGood},
	{Chat, `{"choices":[{"message":{"content":""},"finish_reason":"stop"},{"message":{"content":"x"},"finish_reason":"stop"}]}`, BodyGood},
	{Chat, `{"choices":[{"message":{"content":"","audio":{"id":"a","data":"A"}}}]}`, BodyGood},
	{Chat, `{"choices":[{"message":{"content":""},"finish_reason":"tool_calls"}]}`, BodyGood},
	{Chat, `{"choices":[{"message":{"content":"x"}}],"code":"X","message":"a vendor's chatter"}`, BodyGood},
	{Chat, "", BodyEmpty},
	{Chat, " \r\n\t", BodyEmpty},
	{Chat, `{"choices":[]}`, BodyEmpty},
	{Chat, `{"id":"x","choices":null}`, BodyEmpty},
	{Chat, `{"choices":[{"message":{"content":"","refusal":null,"tool_calls":[]},"finish_reason":"stop"}]}`, BodyEmpty},
	{Chat, `{"choices":[{"message":{"content":[{"type":"text","text":""}]},"finish_reason":"stop"}]}`, BodyEmpty},
	{Chat, `{"choices":[{"text":"","finish_reason":"STOP"}]}`, BodyEmpty},
	{Chat, `{"error":{"message":"x"}}`, BodyFailed},
	{Chat, `{"error":"x"}`, BodyFailed},
	{Chat, `[{"error":{"code":503}}]`, BodyFailed},
	{Chat, `{"error":{"message":"x"},"choices":[{"message":{"content":"x"}}]}`, BodyFailed},
	{Chat, `{"choices":[{"message":{"content":"x"},"finish_reason":"error"}]}`, BodyFailed},
	{Chat, `{"choices":[{"error":{"code":502},"message":{"content":"x"}}]}`, BodyFailed},
	{Chat, `{"choices":null,"base_resp":{"status_code":1004}}`, BodyFailed},
	{Chat, `{"code":500,"msg":"404 NOT_FOUND","success":false}`, BodyFailed},
	{Chat, `{"type":"error","error":{"type":"x"}}`, BodyFailed},
	{Chat, `{"Response":{"Error":{"Code":"X"}}}`, BodyFailed},
	{Chat, "<!DOCTYPE html><html></html>", BodyForeign},
	{Chat, "data: {}\n\n", BodyForeign},
	{Chat, `"choices"`, BodyForeign},
	{Chat, "null", BodyForeign},
	{Chat, "{}", BodyForeign},
	{Chat, `[]`, BodyForeign},
	{Chat, `{choices: 1}`, BodyForeign},
	{Chat, `{"choices":[<html>`, BodyForeign},
	{Chat, `[error] something`, BodyForeign},
	{Chat, `{"choices":[{"message":{"content":"x"}}]}}`, BodyForeign},
	{Chat, `{"choices":[{"message":{"content":"x"}}]} trailing`, BodyForeign},
	{Chat, `[{"choices":[{"message":{"content":"x"}}]}]`, BodyForeign},
	{Chat, `{"content":[{"type":"text","text":"x"}],"stop_reason":"end_turn"}`, BodyForeign},

	{Messages, `{"id":"msg_1","type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn"}`, BodyGood},
	{Messages, `{"content":[{"type":"thinking","thinking":"x","signature":"s"}],"stop_reason":"end_turn"}`, BodyGood},
	{Messages, `{"content":[{"type":"tool_use","id":"t","name":"f","input":{"error":{"a":1}}}],"stop_reason":"tool_use"}`, BodyGood},
	{Messages, `{"content":[],"stop_reason":"refusal"}`, BodyGood},
	{Messages, `{"content":[],"stop_reason":"max_tokens"}`, BodyGood},
	{Messages, `{"content":[],"stop_reason":"end_turn"}`, BodyEmpty},
	{Messages, `{"content":[{"type":"text","text":""}],"stop_reason":"end_turn"}`, BodyEmpty},
	{Messages, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, BodyFailed},
	{Messages, longChat, BodyForeign},

	{Responses, `{"id":"r","object":"response","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"x","annotations":[]}]}]}`, BodyGood},
	{Responses, `{"output":[{"type":"reasoning","summary":[]},{"type":"function_call","name":"f","arguments":"{}"}]}`, BodyGood},
	{Responses, `{"output":[{"type":"message","content":[{"type":"refusal","refusal":"No."}]}]}`, BodyGood},
	{Responses, `{"status":"queued","background":true,"output":[]}`, BodyGood},
	{Responses, `{"status":"in_progress"}`, BodyGood},
	{Responses, `{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}`, BodyGood},
	{Responses, `{"status":"completed","output":[]}`, BodyEmpty},
	{Responses, `{"output":[{"type":"message","content":[{"type":"output_text","text":"","annotations":[]}]}]}`, BodyEmpty},
	{Responses, `{"status":"failed","error":{"code":"server_error"},"output":[]}`, BodyFailed},
	{Responses, `{"status":"failed","error":null,"output":[]}`, BodyFailed},
	{Responses, `{"error":{"message":"x"}}`, BodyFailed},
	{Responses, longChat, BodyForeign},

	{Gemini, `{"candidates":[{"content":{"parts":[{"text":"x"}],"role":"model"},"finishReason":"STOP"}]}`, BodyGood},
	{Gemini, "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]}}]}\n,\r\n{\"usageMetadata\":{}}]", BodyGood},
	{Gemini, `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]}}]}`, BodyGood},
	{Gemini, `{"promptFeedback":{"blockReason":"SAFETY"}}`, BodyGood},
	{Gemini, `{"candidates":[{"finishReason":"MAX_TOKENS"}]}`, BodyGood},
	{Gemini, `{"candidates":[]}`, BodyEmpty},
	{Gemini, `{"promptFeedback":{},"usageMetadata":{"promptTokenCount":1}}`, BodyEmpty},
	{Gemini, `[{"candidates":[{"content":{"parts":[{"text":""}]},"finishReason":"STOP"}]}]`, BodyEmpty},
	{Gemini, `{"error":{"code":503,"status":"UNAVAILABLE"}}`, BodyFailed},
	{Gemini, `[{"error":{"code":503,"status":"UNAVAILABLE"}}]`, BodyFailed},
	{Gemini, `[]`, BodyForeign},
}

func TestBody(t *testing.T) {
	for _, tc := range bodies {
		if got := (Route{Dialect: tc.d, Generates: true}).Body([]byte(tc.body)); got != tc.want {
			t.Errorf("%s %.100s: %v, want %v", tc.d, tc.body, got, tc.want)
		}
	}
}

// TestBodyCut: no beginning of an answer passes for a whole one.
func TestBodyCut(t *testing.T) {
	for _, tc := range bodies {
		body := strings.TrimSpace(tc.body)
		if tc.want == BodyForeign || body == "" || body[0] != '{' && body[0] != '[' {
			continue
		}
		for i := 1; i < len(body); i++ {
			if got := (Route{Dialect: tc.d, Generates: true}).Body([]byte(body[:i])); got != BodyCut {
				t.Fatalf("%s %.100s cut at %d: %v", tc.d, body, i, got)
			}
		}
	}
}

func TestBodyOfOtherAnswers(t *testing.T) {
	for _, tc := range []struct {
		body string
		want Body
	}{
		{"", BodyGood},
		{"\x89PNG\r\n", BodyGood},
		{"plain", BodyGood},
		{"<html>", BodyGood},
		{"[1,2]", BodyGood},
		{`{"cut":`, BodyGood},
		{`{"object":"list","data":[{"embedding":[0.1]}],"error":null}`, BodyGood},
		{`{"error":{"message":"x"}}`, BodyFailed},
		{`{"id":"together","error":{"message":"x"}}`, BodyFailed},
		{`{"error":"x"}`, BodyFailed},
		{`[{"error":{"code":400}}]`, BodyFailed},
		{`{"type":"error","error":{}}`, BodyFailed},
		{`{"object":"error","message":"x"}`, BodyFailed},
		{`{"vectors":null,"base_resp":{"status_code":1004}}`, BodyFailed},
		{`{"vectors":[],"base_resp":{"status_code":0}}`, BodyGood},
		{`{"success":false,"errors":[{"code":1}]}`, BodyFailed},
		{`{"success":true,"result":{}}`, BodyGood},
		{`{"error_code":17,"error_msg":"x"}`, BodyFailed},
		{`{"error_code":0,"error_msg":""}`, BodyGood},
		{`{"Response":{"Error":{"Code":"x"}}}`, BodyFailed},
		// Errors that befell a job which is only told about.
		{`{"id":"ftjob-1","object":"fine_tuning.job","status":"failed","error":{"code":"x","message":"y"}}`, BodyGood},
		{`{"name":"operations/1","done":true,"error":{"code":3,"message":"y"}}`, BodyGood},
		{`{"custom_id":"1","response":null,"error":{"code":"batch_expired"}}`, BodyGood},
		{`{"id":"1","error":{"code":"x"}}` + "\n" + `{"id":"2"}`, BodyGood},
	} {
		if got := (Route{}).Body([]byte(tc.body)); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.body, got, tc.want)
		}
	}
}
