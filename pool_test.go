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
	"testing"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		pattern, name string
		want          bool
	}{
		{"gpt-4o", "gpt-4o", true},
		{"gpt-4o", "gpt-4o-mini", false},
		{"gpt-4o", "GPT-4o", false},
		{"*", "", true},
		{"*", "anything", true},
		{"gpt-*", "gpt-4o", true},
		{"gpt-*", "gpt-", true},
		{"gpt-*", "gpt", false},
		{"*-mini", "gpt-4o-mini", true},
		{"*-mini", "gpt-4o-mini-x", false},
		{"gpt-*-mini", "gpt-4o-mini", true},
		{"gpt-*-mini", "gpt-mini", false},
		{"*4*", "gpt-4o", true},
		{"*5*", "gpt-4o", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*c", "abc", true},
		{"a*b*c", "a-b-b-c", true},
		{"a*b*c", "acb", false},
		{"**", "x", true},
		{"a**b", "ab", true},
		{"*ab*ab", "abab", true},
		{"*ab*ab", "ab", false},
		{"", "", true},
		{"", "x", false},
		{"a.c", "abc", false},
	} {
		if got := matches(tc.pattern, tc.name); got != tc.want {
			t.Errorf("%q, %q: %v", tc.pattern, tc.name, got)
		}
	}
}

// TestTarget: a base URL with a path takes the place of the caller's version segment, and escapes stay as they are.
func TestTarget(t *testing.T) {
	for _, tc := range []struct{ base, path, query, want string }{
		{"https://a.example", "/v1/chat/completions", "", "https://a.example/v1/chat/completions"},
		{"https://a.example/", "/v1/chat/completions", "", "https://a.example/v1/chat/completions"},
		{"https://a.example/api/v3", "/v1/chat/completions", "", "https://a.example/api/v3/chat/completions"},
		{"https://a.example/api/v3/", "/v1/chat/completions", "", "https://a.example/api/v3/chat/completions"},
		{"https://a.example/api/v3", "/chat/completions", "", "https://a.example/api/v3/chat/completions"},
		{"https://a.example/api", "/v1beta/models/m:generateContent", "alt=sse", "https://a.example/api/models/m:generateContent?alt=sse"},
		{"https://a.example/api", "/v1", "", "https://a.example/api"},
		{"https://a.example/api", "/v1/", "", "https://a.example/api/"},
		{"https://a.example/api", "/", "", "https://a.example/api/"},
		{"https://a.example/api", "/vendor/x", "", "https://a.example/api/vendor/x"},
		{"https://a.example/api", "/v", "", "https://a.example/api/v"},
		{"https://a.example/api", "/x/v1/y", "", "https://a.example/api/x/v1/y"},
		{"https://a.example/a%2Fb", "/v1/files/c%2Fd", "", "https://a.example/a%2Fb/files/c%2Fd"},
		{"https://a.example", "/v1/a%2fb%20c", "x=%2F&y=a+b", "https://a.example/v1/a%2fb%20c?x=%2F&y=a+b"},
		{"http://a.example:8080/api", "/v1/x", "", "http://a.example:8080/api/x"},
		{"https://a.example/api", "/v1//x", "", "https://a.example/api//x"},
	} {
		config := testProvider("a", "k1")
		config.BaseURL = tc.base
		p := testPool(t, &Handler{Providers: []*Provider{config}})
		got, err := p.providers[0].target(tc.path, tc.query)
		if err != nil || got.String() != tc.want {
			t.Errorf("%s and %s: %v, %v, want %s", tc.base, tc.path, got, err, tc.want)
		}
		if p.providers[0].base.String() != tc.base {
			t.Errorf("the base URL became %s", p.providers[0].base)
		}
	}
}

// TestWithoutVersion: other handlers may have rewritten the path to anything.
func TestWithoutVersion(t *testing.T) {
	for path, want := range map[string]string{
		"/v1": "", "/v1/x": "/x", "/v1beta/x": "/x", "/v": "/v", "/vx/y": "/vx/y", "/x": "/x", "//v1/x": "//v1/x", "": "", "v1": "v1", "v1/x": "v1/x",
	} {
		if got := withoutVersion(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestServes(t *testing.T) {
	config := testProvider("a", "any", "one")
	config.Dialects = []string{"chat", "messages"}
	config.Models = []Model{{Asked: "m-1", Sent: "model-one"}, {Asked: "m-*"}}
	config.Keys[1].Models = []string{"m-1", "m-2*"}
	p := testPool(t, &Handler{Providers: []*Provider{config}})
	for _, tc := range []struct {
		d        dialect.Dialect
		model    string
		any, one bool
	}{
		{dialect.Chat, "", true, true},
		{dialect.Chat, "m-1", true, true},
		{dialect.Messages, "m-2-large", true, true},
		{dialect.Chat, "m-3", true, false},
		{dialect.Chat, "other", false, false},
		{dialect.Gemini, "m-1", false, false},
		{dialect.Responses, "", false, false},
	} {
		for key, want := range map[string]bool{"any": tc.any, "one": tc.one} {
			if got := p.key(key).serves(tc.d, tc.model); got != want {
				t.Errorf("%s: %s %q: %v", key, tc.d, tc.model, got)
			}
		}
	}
	for asked, sent := range map[string]string{"m-1": "model-one", "m-2": "m-2", "other": "other", "": ""} {
		if got := p.providers[0].sentModel(asked); got != sent {
			t.Errorf("%q is sent as %q", asked, got)
		}
	}
}
