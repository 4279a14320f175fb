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
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// gatewayOf parses a command line.
func gatewayOf(t *testing.T, args ...string) *gateway {
	t.Helper()
	return gatewayFrom(flagsOf(t, runCommand(), args...))
}

func TestRunFlags(t *testing.T) {
	for name, value := range map[string]string{"MY_KEY": "a", "MY_SPARE": "b", "my_small": "c", "MY_EMPTY": ""} {
		t.Setenv(name, value)
	}
	const notAName = "gsk_" + "aVendorsKeyThatCouldBeAName"
	for _, tc := range []struct {
		name, flags string
		want        string // the providers, as JSON
		err         string
	}{
		{
			name: "one", flags: "--provider openai --key-env MY_KEY",
			want: `[{"base_url":"https://api.openai.com","keys":[{"name":"MY_KEY","secret":"{env.MY_KEY}"}],"name":"openai"}]`,
		},
		{
			name: "several keys, both ways", flags: "--provider deepseek --key-env MY_KEY,MY_SPARE --key-env my_small",
			want: `[{"base_url":"https://api.deepseek.com","keys":[{"name":"MY_KEY","secret":"{env.MY_KEY}"},{"name":"MY_SPARE","secret":"{env.MY_SPARE}"},{"name":"my_small","secret":"{env.my_small}"}],"name":"deepseek"}]`,
		},
		{
			name: "several providers, one by another name", flags: "-p openai -k MY_KEY -p claude -k MY_SPARE",
			want: `[{"base_url":"https://api.openai.com","dialects":["chat","responses"],"keys":[{"name":"MY_KEY","secret":"{env.MY_KEY}"}],"name":"openai"},` +
				`{"base_url":"https://api.anthropic.com","dialects":["messages"],"keys":[{"name":"MY_SPARE","secret":"{env.MY_SPARE}"}],"name":"anthropic"}]`,
		},
		{
			name: "a URL", flags: "--provider http://127.0.0.1:11434/openai/v1 --key-env MY_KEY",
			want: `[{"base_url":"http://127.0.0.1:11434/openai/v1","keys":[{"name":"MY_KEY","secret":"{env.MY_KEY}"}],"name":"127.0.0.1:11434-openai-v1"}]`,
		},
		{name: "nothing", err: "--provider is needed, or --demo; it may be a URL, or anthropic, ark, "},
		{name: "an unknown provider", flags: "--provider opanai --key-env MY_KEY", err: `unknown provider "opanai"; it may be a URL, or anthropic, ark, `},
		{name: "a vendor without a public API", flags: "--provider vllm --key-env MY_KEY", err: `unknown provider "vllm"`},
		{name: "no key", flags: "--provider groq", err: "provider groq has no key: name the environment variable that holds it, as in --key-env GROQ_API_KEY"},
		{name: "a key for nobody", flags: "--key-env MY_KEY --provider openai", err: "--key-env belongs after the --provider"},
		{name: "an unset variable", flags: "--provider openai --key-env MY_KEY,MY_NONE", err: "environment variable MY_NONE, for the key of provider openai, is not set"},
		{name: "an empty variable", flags: "--provider openai --key-env MY_EMPTY", err: "environment variable MY_EMPTY, for the key of provider openai, is not set"},
		{name: "a key in place of a name", flags: "--provider groq --key-env " + notAName, err: "it takes the name, such as GROQ_API_KEY, and not the key itself"},
		{name: "one provider twice", flags: "-p openai -k MY_KEY -p openai -k MY_SPARE", err: "provider openai is given twice"},
		{name: "one key twice", flags: "-p openai -k MY_KEY,MY_KEY", err: `two keys are named "MY_KEY"`},
		{name: "a URL with a secret", flags: "-p https://user:" + notAName + "@a.example -k MY_KEY", err: "--provider: "},
		{name: "another scheme", flags: "-p ftp://a.example -k MY_KEY", err: "--provider: "},
		{name: "a demo with providers", flags: "--demo -p openai -k MY_KEY", err: "--demo has a provider of its own"},
		{name: "no port", flags: "--demo --listen localhost", err: `--listen "localhost" is not an address with one port`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config, err := gatewayOf(t, strings.Fields(tc.flags)...).config()
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), notAName) {
					t.Errorf("error %v, want one that says %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var app struct {
				Servers map[string]struct {
					Listen []string
					Routes []struct {
						Handle []struct{ Providers json.RawMessage }
					}
				}
			}
			if err := json.Unmarshal(config.AppsRaw["http"], &app); err != nil {
				t.Fatal(err)
			}
			server := app.Servers["gateway"]
			if got := string(server.Routes[0].Handle[0].Providers); got != tc.want || !slices.Equal(server.Listen, []string{"127.0.0.1:8080"}) {
				t.Errorf("at %s\n%s\nwant\n%s", server.Listen, got, tc.want)
			}
		})
	}
}

func TestKnownProvidersAreTheVendors(t *testing.T) {
	for name, known := range knownProviders {
		u, err := url.Parse(known.baseURL)
		if err != nil {
			t.Fatal(err)
		}
		if vendorOf(u.Host) != name || checkBaseURL(known.baseURL) != nil || !variableName.MatchString(known.env) {
			t.Errorf("%s: %+v", name, known)
		}
		for d := range strings.FieldsSeq(known.dialects) {
			if !slices.Contains(dialect.All, dialect.Dialect(d)) {
				t.Errorf("%s: %s", name, d)
			}
		}
	}
}

func TestListenAddress(t *testing.T) {
	for given, want := range map[string]struct {
		address string
		open    bool
	}{
		":8080":            {"127.0.0.1:8080", false},
		"127.0.0.2:80":     {"127.0.0.2:80", false},
		"localhost:80":     {"localhost:80", false},
		"[::1]:80":         {"[::1]:80", false},
		"0.0.0.0:80":       {"0.0.0.0:80", true},
		"[::]:80":          {"[::]:80", true},
		"llm.example:80":   {"llm.example:80", true},
		"unix//run/a.sock": {"unix//run/a.sock", false},
		"":                 {},
		"8080":             {},
		":80-90":           {},
		":0":               {},
		":http":            {},
	} {
		got, err := listenAddress(given)
		if got != want.address || (err == nil) != (want.address != "") || got != "" && isOpen(got) != want.open {
			t.Errorf("%q: %q %v, open %t", given, got, err, got != "" && isOpen(got))
		}
	}
}

// runs starts a gateway in the place of a server's Caddy. Its log is searched for secrets.
func (s *server) runs(g *gateway) {
	s.t.Helper()
	g.listen = strings.TrimPrefix(s.url, "http://")
	config, err := g.config()
	if err != nil {
		s.t.Fatal(err)
	}
	config.Admin.Listen = s.admin
	config.Logging.Logs[caddy.DefaultLoggerName].WriterRaw = json.RawMessage(`{"output": "sink"}`)
	defer s.client.CloseIdleConnections()
	defer s.loaded.Store(true)
	if err := caddy.Run(config); err != nil {
		s.t.Fatal(err)
	}
}

func TestRunServes(t *testing.T) {
	a := newUpstream(t).on("k1", limited("Retry-After", "20"))
	s := serve(t, "respond hello")
	s.runs(gatewayOf(t, "--provider", a.URL, "--key-env", envOf("k1")+","+envOf("k2"), "--access-log", "--debug"))
	// What callers send as their own key is not logged either.
	s.post("/v1/chat/completions?key="+secretOf("other"), chat("m"), "X-Api-Key", secretOf("other"), "Api-Key", secretOf("other"), "X-Goog-Api-Key", secretOf("other"),
		"Authorization", "Bearer "+secretOf("other")).want(200, "from-k2")
	eventually(t, "an access log", func() bool { return len(sink.those("http.log.access", "handled request")) == 1 })
	if len(sink.ours("attempt failed")) != 1 {
		t.Error("no log of ours")
	}
	s.ask(http.MethodGet, "/config/").want(200, "{env."+envOf("k1")+"}", `"persist":false`)
	table, err := shownStatus(t, false, "--address", s.admin)
	if err != nil || !strings.Contains(table, envOf("k1")+"  cooling") || !strings.Contains(table, strings.TrimPrefix(a.URL, "http://")) {
		t.Error(table, err)
	}
}

func TestRunDemo(t *testing.T) {
	s := serve(t, "respond hello")
	s.runs(gatewayOf(t, "--demo", "--access-log"))
	s.post("/v1/chat/completions", chat("demo")).want(200, "The third key answered.")
	if sink.those("http", "HTTP/2 skipped because it requires TLS") != nil {
		t.Error("a warning that helps nobody")
	}
	s.post("/v1/chat/completions", chat("demo", streaming)).want(200, "The third key ", "[DONE]")
	s.post("/v1/messages", chat("demo", `,"max_tokens":9`)).want(200, "The third key answered.")
	eventually(t, "three requests, and not the upstream's", func() bool { return len(sink.those("http.log.access", "handled request")) == 3 })
	s.wantState("default.keys.limited.status", "cooling", "default.accounts.broke.halt.reason", "billing_error", "default.keys.healthy.status", "available",
		"default.keys.limited.totals.attempts", "1", "default.keys.healthy.totals.attempts", "3")
	if base := s.state("default.providers.default.base_url"); base == "http://"+demoUpstream {
		t.Error("the upstream's address is one that may be taken")
	}
}

// TestRunSharesNoPort: Caddy itself would share it with another Caddy, and each request would go to any of the two.
func TestRunSharesNoPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var out bytes.Buffer
	if err := runGateway(&out, gatewayOf(t, "--demo", "--listen", taken.Addr().String())); err == nil || !strings.Contains(err.Error(), "choose another address with --listen") {
		t.Error(err)
	}
	defer func(was string) { caddy.DefaultAdminListen = was }(caddy.DefaultAdminListen)
	caddy.DefaultAdminListen = taken.Addr().String()
	if err := runGateway(&out, gatewayOf(t, "--demo", "--listen", freeAddress(t))); err == nil || !strings.Contains(err.Error(), "CADDY_ADMIN") {
		t.Error(err)
	}
	if out.Len() > 0 {
		t.Error(out.String())
	}
}
