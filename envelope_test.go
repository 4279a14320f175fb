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

package llmfailover

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestClassifyEnvelopes(t *testing.T) {
	for _, c := range []struct {
		name, body string
		form       form
		codes      string
		message    string // part of it
		status     int
	}{
		{"nothing", " \n", formNone, "", "", 0},
		{"OpenAI", `{"error":{"message":"M","type":"T","code":"C"}}`, formJSON, "T C", "M", 0},
		{"Anthropic", `{"type":"error","error":{"type":"T","message":"M"}}`, formJSON, "T", "M", 0},
		{"Gemini", `{"error":{"code":429,"message":"M","status":"S","details":[{"reason":"R"}]}}`, formJSON, "S R", "M", 429},
		{"an array of one", `[{"error":{"code":404,"message":"M","status":"S"}}]`, formJSON, "S", "M", 404},
		{"a string for an error", `{"error":"M","error_type":"T"}`, formJSON, "T", "M", 0},
		{"no error object", `{"code":30011,"message":"M","data":null}`, formJSON, "30011", "M", 0},
		{"the message is an object", `{"object":"error","message":{"detail":[{"type":"T","msg":"M"}]}}`, formJSON, "T", "M", 0},
		{"FastAPI", `{"detail":"M"}`, formJSON, "", "M", 0},
		{"FastAPI with the caller's input", `{"detail":[{"type":"T","loc":["body"],"msg":"M","input":"rate limit"}]}`, formJSON, "T", "M", 0},
		{"problem details", `{"title":"M","detail":"N","status":404}`, formJSON, "", "M", 404},
		{"MiniMax", `{"base_resp":{"status_code":1004,"status_msg":"M"}}`, formJSON, "1004", "M", 0},
		{"Baidu", `{"error_code":18,"error_msg":"M"}`, formJSON, "18", "M", 0},
		{"Tencent", `{"Response":{"Error":{"Code":"A.B","Message":"M"}}}`, formJSON, "A.B", "M", 0},
		{"Cloudflare", `{"success":false,"errors":[{"code":3036,"message":"M"}]}`, formJSON, "3036", "M", 0},
		{"Bedrock's relay", `{"errorMessage":"M","errorCode":"C","statusCode":400}`, formJSON, "C", "M", 400},
		{"AWS", `{"__type":"com.amazon.coral#Throttling","message":"M"}`, formJSON, "Throttling", "M", 0},
		{"responses stream", `{"type":"response.failed","response":{"error":{"code":"C","message":"M"}}}`, formJSON, "C", "M", 0},
		{"JSON in a string", `{"error":{"message":"{\"error\":{\"code\":\"C\",\"message\":\"M\"}}"}}`, formJSON, "C", "M", 0},
		{"JSON after a sentence", `{"error":{"message":"Upstream said: {\"error\":{\"code\":\"C\",\"message\":\"M\"}}"}}`, formJSON, "C", "Upstream said:. \nM", 0},
		{"Python's dict", `{"error":{"message":"Error code: 429 - {'error': {'message': 'M', 'type': 'T', 'param': None}}"}}`, formJSON, "T", "M", 0},
		{"a JSON string", `"M"`, formText, "", "M", 0},
		{"an event stream", "event: error\ndata: {\"error\":{\"code\":\"C\",\"message\":\"M\"}}\n\n", formJSON, "C", "M", 0},
		{"llama.cpp's event", `error: {"code":400,"message":"M","type":"T"}`, formJSON, "T", "M", 400},
		{"text", "M\n", formText, "", "M", 0},
		{"a page", "<!doctype html><p>rate limit</p>", formHTML, "", "", 0},
		{"XML", "<?xml version=\"1.0\"?><Error><Code>C</Code><Message>M</Message></Error>", formJSON, "C", "M", 0},
		{"with a byte order mark", "\xef\xbb\xbf{\"error\":{\"code\":\"C\"}}", formJSON, "C", "", 0},
		{"cut off", `{"error":{"code":"C","message":"M","details":[{"x":"`, formJSON, "C", "M", 0},
		{"the answer's own text", `{"choices":[{"message":{"role":"assistant","content":"quota"},"error":{"code":502,"message":"M"}}]}`, formJSON, "", "M", 502},
	} {
		s := hear(http.Header{}, []byte(c.body))
		if s.form != c.form || strings.Join(s.codes, " ") != c.codes || !strings.Contains(s.message, c.message) || s.status != c.status {
			t.Errorf("%s: form %d, codes %q, message %q, status %d", c.name, s.form, s.codes, s.message, s.status)
		}
		for _, foreign := range []string{"rate limit", "quota"} {
			if strings.Contains(s.message, foreign) {
				t.Errorf("%s: read the foreign text %q", c.name, s.message)
			}
		}
	}
}

func TestClassifyEnvelopeHeader(t *testing.T) {
	s := hear(http.Header{"X-Amzn-Errortype": {"ThrottlingException:http://internal.amazon.com/coral/"}}, []byte(`{"message":"M"}`))
	if !slices.Equal(s.codes, []string{"ThrottlingException"}) {
		t.Errorf("codes %q", s.codes)
	}
	s = hear(http.Header{"Content-Type": {"text/html"}}, []byte("rate limit exceeded"))
	if s.form != formHTML || s.message != "" {
		t.Errorf("form %d, message %q", s.form, s.message)
	}
}

func TestClassifyUnquoted(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"it's the users' limit", "it's the users' limit"},
		{"the model 'm-1' is gone", "the model 'm-1' is gone"},
		{"bad value: 'my rate limit is reached' here", "bad value:  x  here"},
		{`bad "and don't say 'rate limit' to me" end`, "bad  x  end"},
		{"the tool 'get_credit_balance' is unknown", "the tool  x  is unknown"},
		{"limit 'gemini requests per day per user' of x", "limit 'gemini requests per day per user' of x"},
		{"an “open and a quote", "an “open and a quote"},
		{"„one two three four“ “one two three four”", "„one two three four“ “one two three four”"},
	} {
		if got := unquoted(c.text); got != c.want && c.text[0] != '\xe2' {
			t.Errorf("unquoted(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

func TestClassifyPhrases(t *testing.T) {
	var table phraseTable
	table.add("insufficient .. balance|fund*", "")
	table.add("per day|week\n# hour limit", "余额")
	for _, c := range []struct {
		text string
		want int
	}{
		{"Insufficient account balance", 0},
		{"insufficient_funds", 0},
		{"insufficient. The balance is fine", -1},
		{"insufficient one two three four five six balance", -1},
		{"100 requests per-day", 1},
		{"5-hour limit", 1},
		{"the hour limit", -1},
		{"账户余额不足", 1},
		{"per day, insufficient funds", 0},
		{"", -1},
	} {
		lower := strings.ToLower(c.text)
		if got := table.find(tokensOf(lower), lower, nil); got != c.want {
			t.Errorf("%q: row %d, want %d", c.text, got, c.want)
		}
	}
	if got := codeTokens([]string{"RateLimitExceeded.EndpointTPMExceeded", "insufficient_quota"}); strings.Join(got, " ") != "rate limit exceeded endpoint tpm exceeded . insufficient quota ." {
		t.Errorf("codeTokens: %q", got)
	}
}
