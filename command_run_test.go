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
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

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
		{name: "a key in place of a provider", flags: "--provider " + notAName + " --key-env MY_KEY", err: "--provider does not name a provider, and is not for keys"},
		{name: "a host here", flags: "-p localhost:11434 -k MY_KEY", err: "--provider localhost:11434: a URL begins with http:// or https://, as in http://localhost:11434"},
		{name: "a container", flags: "-p ollama:11434/v1 -k MY_KEY", err: "--provider ollama:11434: a URL begins with http:// or https://, as in http://ollama:11434"},
		{name: "an IP address", flags: "-p 10.0.0.1 -k MY_KEY", err: "as in http://10.0.0.1"},
		{name: "a host elsewhere", flags: "-p api.openai.com/v1 -k MY_KEY", err: "--provider api.openai.com: a URL begins with http:// or https://, as in https://api.openai.com"},
		{name: "two of one name", flags: "-p https://a.example/b/c -k MY_KEY -p http://a.example/b-c -k MY_SPARE", err: "https://a.example/b/c and http://a.example/b-c would both be named a.example-b-c"},
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

// TestRunEchoesNoKey: one may stand anywhere on the command line by mistake.
func TestRunEchoesNoKey(t *testing.T) {
	for _, key := range []string{
		"sk-" + markerOf("k1"), "sk-proj-Ab3", "gsk_abc", "hf_abc", "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef.AbCdEfGh12345678",
		"eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl", "AIzaSyA-1_b", "SOMETHINGthatHASnoDIGITSatALL",
	} {
		if _, err := gatewayOf(t, "--provider", key, "--key-env", "MY_KEY").config(); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
		for _, cmd := range []*cobra.Command{runCommand(), statusCommand()} {
			if err := cmd.Args(cmd, []string{key}); err == nil || strings.Contains(err.Error(), key) {
				t.Errorf("%s %s: %v", cmd.Name(), key, err)
			}
		}
	}
	for _, cmd := range []*cobra.Command{runCommand(), statusCommand()} {
		if err := cmd.Args(cmd, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestRunSaysWhereItIs(t *testing.T) {
	defer func(was string) { caddy.DefaultAdminListen = was }(caddy.DefaultAdminListen)
	const demo = `-d '{"model": "demo", "messages": [{"role": "user", "content": "hi"}]}'`
	for _, tc := range []struct {
		flags, listen, admin string
		want                 []string // its indented lines
	}{
		{"--demo", "127.0.0.1:8080", defaultAdmin, []string{"curl http://127.0.0.1:8080/v1/chat/completions " + demo, "caddy llm-failover status --watch"}},
		{"--demo", "unix//run/a.sock|0660", defaultAdmin, []string{"curl --unix-socket /run/a.sock http://localhost/v1/chat/completions " + demo, "caddy llm-failover status --watch"}},
		{"-p openai -k A", "tcp4/0.0.0.0:80", defaultAdmin, []string{"http://localhost:80/v1  OpenAI's and those like it", "caddy llm-failover status --watch"}},
		{"-p claude -k A", "tcp6/[::1]:80", "localhost:2020", []string{"http://[::1]:80     Anthropic's", "caddy llm-failover status --watch --address localhost:2020"}},
		{
			"-p gemini -k A -p openrouter -k B", "llm.example:80", "unix//run/admin.sock|0200",
			[]string{
				"http://llm.example:80/v1  OpenAI's and those like it", "http://llm.example:80     Anthropic's", "http://llm.example:80     Gemini's",
				"caddy llm-failover status --watch --address unix//run/admin.sock",
			},
		},
		{
			"-p http://127.0.0.1:11434 -k A", "unix//run/a.sock", defaultAdmin,
			[]string{"http://localhost/v1  OpenAI's and those like it", "http://localhost     Anthropic's", "http://localhost     Gemini's", "caddy llm-failover status --watch"},
		},
	} {
		caddy.DefaultAdminListen = tc.admin
		text := gatewayOf(t, strings.Fields(tc.flags)...).usage(tc.listen)
		var got []string
		for line := range strings.Lines(text) {
			if inside, ok := strings.CutPrefix(line, "    "); ok {
				got = append(got, strings.TrimSuffix(inside, "\n"))
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s at %s:%s", tc.flags, tc.listen, text)
		}
		if strings.HasPrefix(tc.listen, "unix") && !strings.Contains(text, "/run/a.sock") {
			t.Errorf("no socket in %s", text)
		}
	}
}

func TestListenAddress(t *testing.T) {
	for given, want := range map[string]struct {
		address, err string
		open         bool
	}{
		":8080":              {address: "127.0.0.1:8080"},
		"127.0.0.2:80":       {address: "127.0.0.2:80"},
		"localhost:80":       {address: "localhost:80"},
		"[::1]:80":           {address: "[::1]:80"},
		"tcp4/:80":           {address: "tcp4/127.0.0.1:80"},
		"tcp6/:80":           {address: "tcp6/[::1]:80"},
		"0.0.0.0:80":         {address: "0.0.0.0:80", open: true},
		"[::]:80":            {address: "[::]:80", open: true},
		"llm.example:80":     {address: "llm.example:80", open: true},
		"unix//run/a.sock":   {address: "unix//run/a.sock"},
		"unix/":              {err: "lacks the socket's path"},
		"":                   {err: "one port"},
		"8080":               {err: "one port"},
		":80-90":             {err: "one port"},
		":0":                 {err: "one port"},
		":http":              {err: "one port"},
		"udp/:80":            {err: "on TCP or on a unix socket"},
		"fd/3":               {err: "on TCP or on a unix socket"},
		"https://:80":        {err: "is a URL"},
		"http://127.0.0.1:8": {err: "is a URL"},
	} {
		got, err := listenAddress(given)
		if got != want.address || (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) || got != "" && isOpen(got) != want.open {
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
	for _, network := range []string{"", "tcp/", "tcp4/"} {
		if err := runGateway(&out, gatewayOf(t, "--demo", "--listen", network+taken.Addr().String())); err == nil || !strings.Contains(err.Error(), "choose another address with --listen") {
			t.Error(network, err)
		}
	}
	defer func(was string) { caddy.DefaultAdminListen = was }(caddy.DefaultAdminListen)
	for admin, want := range map[string]string{
		taken.Addr().String(): "choose another address with the environment variable CADDY_ADMIN", "tcp4/" + taken.Addr().String(): "CADDY_ADMIN",
		"off": "CADDY_ADMIN is off",
	} {
		caddy.DefaultAdminListen = admin
		if err := runGateway(&out, gatewayOf(t, "--demo", "--listen", freeAddress(t))); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(admin, err)
		}
	}
	t.Run("a socket", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		socket, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		socket.(*net.UnixListener).SetUnlinkOnClose(false)
		if err := checkFree(wanted{"unix/" + path, "advice"}); err == nil || !strings.Contains(err.Error(), "somebody listens at the socket "+path+"; advice") {
			t.Error(err)
		}
		socket.Close()
		if err := checkFree(wanted{"unix/" + path + "|0600", ""}); err != nil { // what a process that died has left
			t.Error(err)
		}
	})
	t.Run("each other's", func(t *testing.T) {
		free := freeAddress(t)
		for _, one := range []string{free, "unix//nowhere/s"} {
			if err := checkFree(wanted{one, "first"}, wanted{one, "second"}); err == nil || !strings.Contains(err.Error(), "; second") {
				t.Error(err)
			}
		}
		if err := checkFree(wanted{free, ""}, wanted{freeAddress(t), ""}); err != nil {
			t.Error(err)
		}
	})
	if out.Len() > 0 {
		t.Error(out.String())
	}
}
