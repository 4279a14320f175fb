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

package e2e

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

const (
	openaiLimited = `{"error":{"message":"Rate limit reached for requests","type":"requests","param":null,"code":"rate_limit_exceeded"}}`
	openaiText    = `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
	openaiTool    = `{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]},"finish_reason":"tool_calls"}]}`
	openaiAnswer  = `{"id":"r1","object":"response","created_at":1,"status":"completed","model":"m","error":null,"output":[{"type":"message","id":"i1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"hello","annotations":[]}]}]}`
)

func openaiChunk(delta, finish string) string {
	return `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}`
}

var (
	openaiStream     = []string{openaiChunk(`{"role":"assistant","content":""}`, "null"), openaiChunk(`{"content":"hel"}`, "null"), openaiChunk(`{"content":"lo"}`, "null"), openaiChunk(`{}`, `"stop"`), "data: [DONE]"}
	openaiToolStream = []string{
		openaiChunk(`{"role":"assistant","content":null}`, "null"),
		openaiChunk(`{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"weather","arguments":""}}]}`, "null"),
		openaiChunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]}`, "null"),
		openaiChunk(`{"tool_calls":[{"index":0,"function":{"arguments":"\"Oslo\"}"}}]}`, "null"),
		openaiChunk(`{}`, `"tool_calls"`), "data: [DONE]",
	}
	openaiResponseStream = []string{
		"event: response.created\n" + `data: {"type":"response.created","sequence_number":0,"response":{"id":"r1","object":"response","created_at":1,"status":"in_progress","model":"m","output":[]}}`,
		"event: response.output_text.delta\n" + `data: {"type":"response.output_text.delta","sequence_number":1,"item_id":"i1","output_index":0,"content_index":0,"delta":"hello"}`,
		"event: response.completed\n" + `data: {"type":"response.completed","sequence_number":2,"response":` + openaiAnswer + `}`,
	}
)

func openaiParams(tools bool) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}
	if tools {
		p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "weather", Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}},
		})}
	}
	return p
}

func openaiClient(url string, more ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{option.WithBaseURL(url + "/v1/"), option.WithAPIKey("the caller's")}, more...)...)
}

func openaiCollect(t *testing.T, client openai.Client, p openai.ChatCompletionNewParams) (*openai.ChatCompletionAccumulator, error) {
	t.Helper()
	stream := client.Chat.Completions.NewStreaming(context.Background(), p)
	defer stream.Close()
	acc := new(openai.ChatCompletionAccumulator)
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Error("a chunk does not fit")
		}
	}
	return acc, stream.Err()
}

func TestOpenAIThroughFailover(t *testing.T) {
	limited := says(429, openaiLimited, "Retry-After", "30")
	for _, k := range []kind{{"text", false, openaiText, openaiStream}, {"tools", true, openaiTool, openaiToolStream}} {
		check := func(t *testing.T, c *openai.ChatCompletion) {
			t.Helper()
			m := c.Choices[0].Message
			if !k.tools && m.Content != "hello" {
				t.Errorf("%+v", m)
			}
			if k.tools && (len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != "weather" || m.ToolCalls[0].Function.Arguments != `{"city":"Oslo"}`) {
				t.Errorf("%+v", m.ToolCalls)
			}
		}
		failsOver(t, k, k.name, limited, says(200, k.whole), check, func(_ *testing.T, url string) (*openai.ChatCompletion, error) {
			client := openaiClient(url)
			return client.Chat.Completions.New(context.Background(), openaiParams(k.tools))
		})
		for failure, first := range map[string]http.HandlerFunc{"limited": limited, "cut before content": streams(true, k.events[0]), "empty": streams(false, "data: [DONE]")} {
			failsOver(t, k, k.name+" stream, "+failure, first, streams(false, k.events...), check, func(t *testing.T, url string) (*openai.ChatCompletion, error) {
				got, err := openaiCollect(t, openaiClient(url), openaiParams(k.tools))
				return &got.ChatCompletion, err
			})
		}
	}
	t.Run("responses", func(t *testing.T) {
		u := newUpstream(t, map[string][]http.HandlerFunc{"k1": {limited}, "k2": {says(200, openaiAnswer), streams(false, openaiResponseStream...)}})
		client := openaiClient(serve(t, u, ""))
		p := responses.ResponseNewParams{Model: "m", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}}
		got, err := client.Responses.New(context.Background(), p)
		if err != nil || got.OutputText() != "hello" {
			t.Error(err, got)
		}
		stream := client.Responses.NewStreaming(context.Background(), p)
		var text strings.Builder
		last := ""
		for stream.Next() {
			text.WriteString(stream.Current().Delta)
			last = stream.Current().Type
		}
		if stream.Err() != nil || text.String() != "hello" || last != "response.completed" {
			t.Error(stream.Err(), text.String(), last)
		}
		u.wantCalls(t, "k1 k2 k2")
	})
}

// TestOpenAIErrors: refusals are the client's own typed errors, and it does not try again what we have tried.
func TestOpenAIErrors(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script http.HandlerFunc
		status int
		code   string
		kind   string
		calls  string
	}{
		{"limited", says(429, openaiLimited), 429, "rate_limit_exceeded", "requests", "k1 k2"},
		{"server error", says(500, `{"error":{"message":"oops","type":"server_error","param":null,"code":null}}`), 500, "", "server_error", "k1 k2"},
		{"bad request", says(400, `{"error":{"message":"no","type":"invalid_request_error","param":"messages","code":"bad_thing"}}`), 400, "bad_thing", "invalid_request_error", "k1"},
		{"refused credentials", says(401, `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`), 502, "upstream_credentials", "api_error", "k1 k2"},
		{"no money", says(402, `{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}`), 402, "invalid_request_error", "unknown_error", "k1 k2"},
		{"nothing usable", says(200, `{}`), 502, "attempts_exhausted", "api_error", "k1 k2"},
		{"error in a stream", streams(false, "data: "+openaiLimited), 429, "rate_limit_exceeded", "requests", "k1 k2"},
	} {
		for _, streaming := range []bool{false, true} {
			name := tc.name
			if streaming {
				name += ", stream"
			}
			t.Run(name, func(t *testing.T) {
				u := newUpstream(t, map[string][]http.HandlerFunc{"k1": {tc.script}, "k2": {tc.script}})
				client := openaiClient(serve(t, u, "same_key_on model_unavailable"))
				var err error
				if streaming {
					_, err = openaiCollect(t, client, openaiParams(false))
				} else {
					_, err = client.Chat.Completions.New(context.Background(), openaiParams(false))
				}
				var typed *openai.Error
				if !errors.As(err, &typed) {
					t.Fatalf("%T %v", err, err)
				}
				if typed.StatusCode != tc.status || typed.Code != tc.code || typed.Type != tc.kind || typed.Message == "" {
					t.Errorf("%d code %q type %q: %v", typed.StatusCode, typed.Code, typed.Type, err)
				}
				u.wantCalls(t, tc.calls)
			})
		}
	}
	t.Run("halted", func(t *testing.T) {
		u := newUpstream(t, map[string][]http.HandlerFunc{"k1": {says(402, `{"error":{"message":"Insufficient Balance"}}`)}, "k2": {says(402, `{"error":{"message":"Insufficient Balance"}}`)}})
		client := openaiClient(serve(t, u, ""), option.WithMaxRetries(0)) // it would wait as long as we ask it to
		for i := range 3 {
			_, err := client.Chat.Completions.New(context.Background(), openaiParams(false))
			var typed *openai.Error
			if !errors.As(err, &typed) || i > 0 && (typed.StatusCode != 503 || typed.Code != "all_halted") {
				t.Error(err)
			}
		}
		u.wantCalls(t, "k1 k2")
	})
	t.Run("a short rest is waited for by the client", func(t *testing.T) {
		u := newUpstream(t, map[string][]http.HandlerFunc{"k1": {says(429, openaiLimited, "Retry-After-Ms", "700"), says(200, openaiText)}, "k2": {says(429, openaiLimited, "Retry-After-Ms", "700"), says(200, openaiText)}})
		client := openaiClient(serve(t, u, "max_wait 10ms"))
		if _, err := client.Chat.Completions.New(context.Background(), openaiParams(false)); err == nil {
			t.Error("served at once")
		}
		if got, err := client.Chat.Completions.New(context.Background(), openaiParams(false)); err != nil || got.Choices[0].Message.Content != "hello" {
			t.Error(err)
		}
		u.wantCalls(t, "k1 k2 k1")
	})
	t.Run("a stream that breaks off", func(t *testing.T) {
		u := newUpstream(t, map[string][]http.HandlerFunc{"k1": {streams(true, openaiStream[:3]...)}})
		got, err := openaiCollect(t, openaiClient(serve(t, u, "")), openaiParams(false))
		if err == nil || got.Choices[0].Message.Content != "hello" {
			t.Errorf("%v %+v", err, got.Choices)
		}
		u.wantCalls(t, "k1")
	})
}
