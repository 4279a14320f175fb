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

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

const (
	anthropicLimited = `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your rate limit"}}`
	anthropicText    = `{"id":"m1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`
	anthropicTool    = `{"id":"m1","type":"message","role":"assistant","model":"m","content":[{"type":"tool_use","id":"t1","name":"weather","input":{"city":"Oslo"}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`
)

func anthropicEvents(block, delta, more string, reason string) []string {
	return []string{
		"event: message_start\n" + `data: {"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}}`,
		"event: content_block_start\n" + `data: {"type":"content_block_start","index":0,"content_block":` + block + `}`,
		"event: ping\ndata: {\"type\":\"ping\"}",
		"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":` + delta + `}`,
		"event: content_block_delta\n" + `data: {"type":"content_block_delta","index":0,"delta":` + more + `}`,
		"event: content_block_stop\n" + `data: {"type":"content_block_stop","index":0}`,
		"event: message_delta\n" + `data: {"type":"message_delta","delta":{"stop_reason":"` + reason + `","stop_sequence":null},"usage":{"output_tokens":3}}`,
		"event: message_stop\n" + `data: {"type":"message_stop"}`,
	}
}

var (
	anthropicStream     = anthropicEvents(`{"type":"text","text":""}`, `{"type":"text_delta","text":"hel"}`, `{"type":"text_delta","text":"lo"}`, "end_turn")
	anthropicToolStream = anthropicEvents(`{"type":"tool_use","id":"t1","name":"weather","input":{}}`, `{"type":"input_json_delta","partial_json":"{\"city\":"}`, `{"type":"input_json_delta","partial_json":"\"Oslo\"}"}`, "tool_use")
)

func anthropicParams(tools bool) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{Model: "m", MaxTokens: 100, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))}}
	if tools {
		p.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
			Name: "weather", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"city": map[string]any{"type": "string"}}},
		}}}
	}
	return p
}

func anthropicClient(url string, more ...option.RequestOption) anthropic.Client {
	return anthropic.NewClient(append([]option.RequestOption{option.WithBaseURL(url + "/"), option.WithAPIKey("the caller's")}, more...)...)
}

func anthropicCollect(t *testing.T, client anthropic.Client, p anthropic.MessageNewParams) (anthropic.Message, error) {
	t.Helper()
	stream := client.Messages.NewStreaming(context.Background(), p)
	defer stream.Close()
	var m anthropic.Message
	for stream.Next() {
		if err := m.Accumulate(stream.Current()); err != nil {
			t.Error(err)
		}
	}
	return m, stream.Err()
}

func TestAnthropicThroughFailover(t *testing.T) {
	limited := says(429, anthropicLimited, "Retry-After", "30")
	for _, k := range []kind{{"text", false, anthropicText, anthropicStream}, {"tools", true, anthropicTool, anthropicToolStream}} {
		check := func(t *testing.T, m *anthropic.Message) {
			t.Helper()
			if len(m.Content) != 1 {
				t.Fatalf("%+v", m)
			}
			c := m.Content[0]
			if !k.tools && c.Text != "hello" {
				t.Errorf("%+v", c)
			}
			if k.tools && (c.Name != "weather" || strings.ReplaceAll(string(c.Input), " ", "") != `{"city":"Oslo"}`) {
				t.Errorf("%s %s", c.Name, c.Input)
			}
		}
		failsOver(t, k, k.name, limited, says(200, k.whole), check, func(_ *testing.T, url string) (*anthropic.Message, error) {
			client := anthropicClient(url)
			return client.Messages.New(context.Background(), anthropicParams(k.tools))
		})
		empty := k.events[:3]
		if k.tools {
			empty = k.events[:1] // a tool call's start is content
		}
		for failure, first := range map[string]http.HandlerFunc{
			"limited": limited, "cut before content": streams(true, empty...),
			"overloaded": streams(false, k.events[0], "event: error\n"+`data: {"type":"error","error":{"type":"api_error","message":"Internal server error"}}`),
		} {
			failsOver(t, k, k.name+" stream, "+failure, first, streams(false, k.events...), check, func(t *testing.T, url string) (*anthropic.Message, error) {
				got, err := anthropicCollect(t, anthropicClient(url), anthropicParams(k.tools))
				return &got, err
			})
		}
	}
}

func TestAnthropicErrors(t *testing.T) {
	said := func(kind, message string) string {
		return `{"type":"error","error":{"type":"` + kind + `","message":"` + message + `"},"request_id":"req_1"}`
	}
	for _, tc := range []struct {
		name   string
		script http.HandlerFunc
		status int
		kind   string
		calls  string
	}{
		{"limited", says(429, anthropicLimited), 429, "rate_limit_error", "k1 k2"},
		{"server error", says(500, said("api_error", "Internal server error")), 500, "api_error", "k1 k2"},
		{"bad request", says(400, said("invalid_request_error", "messages: no")), 400, "invalid_request_error", "k1"},
		{"refused credentials", says(401, said("authentication_error", "invalid x-api-key")), 502, "api_error", "k1 k2"},
		{"overloaded", says(529, said("overloaded_error", "Overloaded")), 529, "overloaded_error", "k1 k1 k2 k2"},
		{"nothing usable", says(200, `{}`), 502, "api_error", "k1 k2"},
		{"error in a stream", streams(false, anthropicStream[0], "event: error\ndata: "+anthropicLimited), 429, "rate_limit_error", "k1 k2"},
	} {
		for _, streaming := range []bool{false, true} {
			name := tc.name
			if streaming {
				name += ", stream"
			}
			t.Run(name, func(t *testing.T) {
				u := newUpstream(t, map[string][]http.HandlerFunc{"k1": {tc.script}, "k2": {tc.script}})
				client := anthropicClient(serve(t, u, "same_key_on model_unavailable"))
				var err error
				if streaming {
					_, err = anthropicCollect(t, client, anthropicParams(false))
				} else {
					_, err = client.Messages.New(context.Background(), anthropicParams(false))
				}
				var typed *anthropic.Error
				if !errors.As(err, &typed) {
					t.Fatalf("%T %v", err, err)
				}
				if typed.StatusCode != tc.status || string(typed.Type()) != tc.kind || typed.Message == "" {
					t.Errorf("%d type %q %q: %v", typed.StatusCode, typed.Type(), typed.Message, err)
				}
				u.wantCalls(t, tc.calls)
			})
		}
	}
	t.Run("halted", func(t *testing.T) {
		broke := says(402, said("billing_error", "Your credit balance is too low"))
		u := newUpstream(t, map[string][]http.HandlerFunc{"k1": {broke}, "k2": {broke}})
		client := anthropicClient(serve(t, u, ""), option.WithMaxRetries(0)) // it would wait as long as we ask it to
		for i := range 3 {
			_, err := client.Messages.New(context.Background(), anthropicParams(false))
			var typed *anthropic.Error
			if !errors.As(err, &typed) || i > 0 && (typed.StatusCode != 503 || typed.Type() != "overloaded_error") {
				t.Error(err)
			}
		}
		u.wantCalls(t, "k1 k2")
	})
	t.Run("a stream that breaks off", func(t *testing.T) {
		u := newUpstream(t, map[string][]http.HandlerFunc{"k1": {streams(true, anthropicStream[:5]...)}})
		got, err := anthropicCollect(t, anthropicClient(serve(t, u, "")), anthropicParams(false))
		if err == nil || got.Content[0].Text != "hello" || got.StopReason != "" {
			t.Errorf("%v %+v", err, got)
		}
		u.wantCalls(t, "k1")
	})
}
