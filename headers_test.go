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
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

func TestOnlyTheKeysCredentialTravels(t *testing.T) {
	for _, tc := range []struct{ name, path, auth, field, value string }{
		{"chat", "/v1/chat/completions", "", "Authorization", "Bearer "},
		{"responses", "/v1/responses", "", "Authorization", "Bearer "},
		{"other", "/v1/embeddings", "", "Authorization", "Bearer "},
		{"messages", "/v1/messages", "", "X-Api-Key", ""},
		{"gemini", "/v1beta/models/m:generateContent", "", "X-Goog-Api-Key", ""},
		{"bearer", "/v1/messages", "auth bearer", "Authorization", "Bearer "},
		{"x-api-key", "/v1/chat/completions", "auth x-api-key", "X-Api-Key", ""},
		{"x-goog-api-key", "/v1/chat/completions", "auth x-goog-api-key", "X-Goog-Api-Key", ""},
		{"api-key", "/v1/chat/completions", "auth api-key", "Api-Key", ""},
		{"own", "/v1/chat/completions", `auth header X-Own "Token {key}"`, "X-Own", "Token "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newUpstream(t).on("k1", fails(500, "oops"))
			s := serve(t, pair(a, quick, tc.auth))
			s.post(tc.path+"?a=%20b&key=callers&c=+d&a=2", chat("m"),
				"Authorization", "Bearer callers", "X-Api-Key", "callers", "Api-Key", "callers", "X-Goog-Api-Key", "callers", tc.field, "callers",
				"Proxy-Authorization", "callers", "Cookie", "session=callers", "Openai-Organization", "callers", "Openai-Project", "callers",
				"X-Goog-User-Project", "callers", "X-Forwarded-For", "callers", "X-Forwarded-Host", "callers", "Forwarded", "callers", "X-Real-Ip", "callers", "Via", "callers",
				"Connection", "X-Hop", "X-Hop", "callers", "Keep-Alive", "callers", "Te", "trailers", "Upgrade", "callers",
				"Sec-Websocket-Protocol", "openai-insecure-api-key.callers",
				"Anthropic-Version", "2023-06-01", "Openai-Beta", "assistants=v2", "User-Agent", "test/1", "Idempotency-Key", "i-1", "Accept", "x/y", "Traceparent", "00-1-2-3").want(200)
			a.wantOrder("k1 k2")
			for i, c := range a.asked("") {
				want := tc.value + secretOf([]string{"k1", "k2"}[i])
				if got := c.header.Values(tc.field); len(got) != 1 || got[0] != want {
					t.Errorf("%s is %d fields", tc.field, len(got))
				}
				for name, values := range c.header {
					if strings.Contains(strings.Join(values, " "), "callers") {
						t.Errorf("%s travels", name)
					}
				}
				if want := tc.path + "?a=%20b&c=+d&a=2"; c.uri != want {
					t.Errorf("uri %s, want %s", c.uri, want)
				}
				for name, want := range map[string]string{
					"Anthropic-Version": "2023-06-01", "Openai-Beta": "assistants=v2", "User-Agent": "test/1", "Idempotency-Key": "i-1", "Accept": "x/y", "Traceparent": "00-1-2-3",
					"Accept-Encoding": "identity", "Te": "", "Connection": "", "Keep-Alive": "", "Upgrade": "", "X-Hop": "", "Transfer-Encoding": "",
				} {
					if got := c.header.Get(name); got != want {
						t.Errorf("%s is %q, want %q", name, got, want)
					}
				}
				if c.host != strings.TrimPrefix(a.URL, "http://") {
					t.Error("Host", c.host)
				}
			}
		})
	}
	t.Run("no user agent of ours", func(t *testing.T) {
		a := newUpstream(t)
		s := serve(t, pair(a))
		s.post("/v1/chat/completions", chat("m"), "User-Agent", "").want(200)
		if got, given := a.asked("k1")[0].header["User-Agent"]; given {
			t.Error(got)
		}
	})
}

func TestPathsAreJoined(t *testing.T) {
	for _, tc := range []struct{ base, path, want string }{
		{"", "/v1/chat/completions", "/v1/chat/completions"},
		{"", "/v1/files/a%2Fb%20c?x=%2F", "/v1/files/a%2Fb%20c?x=%2F"},
		{"/", "/v1/chat/completions", "/v1/chat/completions"},
		{"/api/v3", "/v1/chat/completions", "/api/v3/chat/completions"},
		{"/api/v3/", "/v1/chat/completions?b=c", "/api/v3/chat/completions?b=c"},
		{"/v1beta/openai", "/v1/chat/completions", "/v1beta/openai/chat/completions"},
		{"/api/v3", "/v1beta/models/m:generateContent", "/api/v3/models/m:generateContent"},
		{"/api/v3", "/chat/completions", "/api/v3/chat/completions"},
		{"/api/v3", "/vault/chat", "/api/v3/vault/chat"},
		{"/a%2Fb", "/v1/files/c%2Fd", "/a%2Fb/files/c%2Fd"},
	} {
		t.Run(tc.base+tc.path, func(t *testing.T) {
			a := newUpstream(t)
			s := serve(t, fmt.Sprintf("llm_failover %s%s {\n%s}", a.URL, tc.base, keysOf("k1")))
			s.post(tc.path, chat("m")).want(200)
			if got := a.asked("")[0].uri; got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestHeaderUp(t *testing.T) {
	a, b := newUpstream(t).on("k1", fails(500, "oops")), newUpstream(t)
	s := serve(t, fmt.Sprintf(`llm_failover {
		provider A %s {
			%s
			header_up X-Set "a {http.request.header.X-Caller} {http.request.method}"
			header_up +X-Add more
			header_up -X-Drop
			header_up X-Caller "the provider"
			header_up Authorization nonsense
		}
		provider B %s {
			%s
		}
		%s
	}`, a.URL, keysOf("k1"), b.URL, keysOf("b1"), quick))
	s.post("/v1/chat/completions", chat("m"), "X-Caller", "the caller", "X-Drop", "x", "X-Add", "one").want(200, "from-b1")
	for u, want := range map[*upstream]map[string]string{
		a: {"X-Set": "a the caller POST", "X-Add": "one, more", "X-Drop": "", "X-Caller": "the provider"},
		b: {"X-Set": "", "X-Add": "one", "X-Drop": "x", "X-Caller": "the caller"},
	} {
		for name, value := range want {
			if got := strings.Join(u.asked("")[0].header.Values(name), ", "); got != value {
				t.Errorf("%s is %q, want %q", name, got, value)
			}
		}
	}
	a.wantOrder("k1") // with its credential
}

func TestAnswersHeader(t *testing.T) {
	a := newUpstream(t).on("k1", says(200, fmt.Sprintf(families[0].whole, "hi"),
		"X-Request-Id", "r1", "Connection", "X-Hop", "X-Hop", "1", "Keep-Alive", "x", "Proxy-Authenticate", "x", "Location", "http://elsewhere/", "Alt-Svc", "h3", "X-Ratelimit-Remaining", "7",
		"Content-Type", "application/json; charset=utf-8"))
	s := serve(t, pair(a))
	s.post("/v1/chat/completions", chat("m")).want(200, "hi").wantHeader("X-Request-Id", "r1", "X-Hop", "", "Keep-Alive", "", "Proxy-Authenticate", "", "Location", "", "Alt-Svc", "",
		"X-Ratelimit-Remaining", "7", "Content-Type", "application/json; charset=utf-8")
}

func TestOtherMethods(t *testing.T) {
	a := newUpstream(t).on("k1", reply{do: func(w http.ResponseWriter, r *http.Request, c *call) {
		switch {
		case r.Header.Get("If-None-Match") != "":
			w.WriteHeader(http.StatusNotModified)
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"object":"list","data":[]}`)
		}
	}})
	s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+"}\nheader Access-Control-Allow-Origin *")
	for _, tc := range []struct {
		method  string
		headers []string
		status  int
		body    string
	}{
		{http.MethodGet, nil, 200, `{"object":"list","data":[]}`},
		{http.MethodHead, nil, 200, ""},
		{http.MethodDelete, nil, 204, ""},
		{http.MethodGet, []string{"If-None-Match", "x"}, 304, ""},
	} {
		a.forget()
		got := s.do(s.client, s.request(tc.method, "/v1/models", nil, tc.headers...)).want(tc.status)
		if got.body != tc.body {
			t.Errorf("%s: %q", tc.method, got.body)
		}
		c := a.asked("k1")[0]
		if len(c.body) > 0 || c.length != 0 || c.method != tc.method || c.header.Get("Content-Type") != "" {
			t.Error(c.method, c.length, c.header)
		}
	}
	a.forget()
	s.do(s.client, s.request(http.MethodOptions, "/v1/models", nil)).want(200)
	a.wantOrder("") // CORS is another handler's
}

// TestRedirectsAreNotFollowed: neither the request nor the credential goes elsewhere, and nobody hears where.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := newUpstream(t)
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			a := newUpstream(t).on("k1", says(status, "", "Location", elsewhere.URL+"/v1/chat/completions"))
			s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+quick+"}")
			got := s.post("/v1/chat/completions", chat("m")).want(502).wantHeader("Location", "").wantJSON("error.code", "attempts_exhausted", "error.attempts.0.class", "server_error")
			got.lacks(elsewhere.URL)
		})
	}
	elsewhere.wantOrder("")
}
