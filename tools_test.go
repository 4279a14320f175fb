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

//go:build tooltests

package llmfailover

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/caddyserver/caddy/v2"
)

// The tests that need more than Go are built with the tag tooltests, where CI has put these programs: what a machine lacks is
// then a failure, and never passed over.

// tool finds a program that a test needs.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("there is no %s here; .ci/tools installs it", name)
	}
	return path
}

// TestExampleUnit asks systemd's own checker.
func TestExampleUnit(t *testing.T) {
	checker := tool(t, "systemd-analyze")
	unit := filepath.Join(t.TempDir(), "caddy-llm.service")
	text := substitute(t, readDoc(t, production+"caddy-llm.service"), "=/usr/local/bin/caddy-llm ", "=/bin/true ")
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), checker, "verify", unit).CombinedOutput(); err != nil || strings.Contains(string(out), "caddy-llm") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestExampleAlertsInPromtool has Prometheus itself read and try the rules, and read the dashboard's queries.
func TestExampleAlertsInPromtool(t *testing.T) {
	promtool := tool(t, "promtool")
	// The dashboard's queries as rules: so much of promtool reads expressions.
	type rule struct {
		Record, Expr string
	}
	var queries []rule
	for i, q := range dashboardQueries(t) {
		queries = append(queries, rule{fmt.Sprintf("query:%d", i), strings.NewReplacer("$pool", ".+", "$__rate_interval", "1m").Replace(q.expr)})
	}
	asRules, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": queries}}})
	if err != nil {
		t.Fatal(err)
	}
	dashboard := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(dashboard, asRules, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", production + "alerts.yaml"}, {"test", "rules", production + "alerts_test.yaml"}, {"check", "rules", dashboard}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
}

// TestExampleAlerting has a key rejected and an account halted: the webhook gets a message for each, by the script that
// stands there.
func TestExampleAlerting(t *testing.T) {
	tool(t, "curl")
	messages := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var message struct{ Text string }
		if err := json.Unmarshal(body, &message); err != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v in %s", err, body)
		}
		messages <- message.Text
	}))
	defer hook.Close()
	for name, value := range map[string]string{"ALERT_WEBHOOK": hook.URL + "/secret", "OPENAI_KEY_1": secretOf("k1"), "OPENAI_KEY_2": secretOf("k2")} {
		t.Setenv(name, value)
	}
	t.Setenv("PATH", must(filepath.Abs(alerting))(t)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	config := readDoc(t, alerting+"Caddyfile")
	for _, name := range []string{eventCircuitOpened, eventCircuitClosed, eventHalted, eventRecovered, eventKeyRejected, eventStreamFailed} {
		if !strings.Contains(config, "\t\ton "+name+" exec ") {
			t.Errorf("it does not listen to %s", name)
		}
	}

	a := newUpstream(t).on("k1", fails(401, "invalid api key")).on("k2", fails(402, "insufficient balance"))
	s := serve(t, "respond nothing")
	data, err := adapt(t, substitute(t, config, "https://api.openai.com", a.URL, "exec logger ", "exec true ", "\tauto_https off\n",
		"\tauto_https off\n\tadmin "+s.admin+"\n\tpersist_config off\n\tlog {\n\t\toutput sink\n\t}\n", ":8080", s.url, "\tbind 127.0.0.1\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(data, true); err != nil {
		t.Fatal(err)
	}
	s.client.CloseIdleConnections()
	s.post("/v1/chat/completions", chat("gpt-4.1"))
	for _, want := range []string{"^default/default/main: key rejected, tried again at 20..-..-..T", `^default/default: account halted \(billing_error\) until 20..-..-..T.*Z, account spare$`} {
		select {
		case got := <-messages:
			if !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("%q, want %s", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no message: %s", want)
		}
	}

	// Whatever a name holds, a message stays JSON.
	alert := func(text string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "llm-alert", text).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	alert("a \"quoted\" \\ näme\tin two\r\nlines")
	if got, want := <-messages, `a "quoted" \ näme in two  lines`; got != want {
		t.Errorf("%q, want %q", got, want)
	}

	// Nobody listens yet: it is tried again.
	late := &http.Server{Addr: freeAddress(t), Handler: hook.Config.Handler, ReadHeaderTimeout: time.Minute}
	defer late.Close()
	t.Setenv("ALERT_WEBHOOK", "http://"+late.Addr)
	time.AfterFunc(500*time.Millisecond, func() { _ = late.ListenAndServe() })
	alert("late")
	if got := <-messages; got != "late" {
		t.Errorf("%q", got)
	}
}
