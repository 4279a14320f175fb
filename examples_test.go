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
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"
	"go.yaml.in/yaml/v3"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
)

// What stands in examples/ besides Caddyfiles that load as they are: those are in TestExamplesAdapt.
const (
	production = "examples/production/"
	alerting   = "examples/alerting/"
)

// substitute replaces each of the old texts, which must be there.
func substitute(t *testing.T, text string, oldnew ...string) string {
	t.Helper()
	for i := 0; i < len(oldnew); i += 2 {
		if !strings.Contains(text, oldnew[i]) {
			t.Fatalf("%q is not there", oldnew[i])
		}
		text = strings.ReplaceAll(text, oldnew[i], oldnew[i+1])
	}
	return text
}

// lookHash is a hash of the password look, and a cheap one.
const lookHash = "$2a$04$/buHraL1UxRmFRpK2Ki8FO7fTu3azsXDOjyfLUe/P1HOl/o4XNL/G"

// productionSecrets sets what the head of the production Caddyfile says.
func productionSecrets(t *testing.T) (token string) {
	t.Helper()
	dir := t.TempDir()
	token = "gateway-" + markerOf("k1")
	for name, value := range map[string]string{
		"GATEWAY_TOKEN": token, "STATUS_PASSWORD": lookHash, "OPENAI_KEY_1": secretOf("k1"), "SECRETS_DIR": dir,
	} {
		t.Setenv(name, value)
	}
	for name, key := range map[string]string{"openai_key_2": "k2", "openrouter_key": "k3"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(secretOf(key)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return token
}

// TestExampleProductionIsValid provisions the production Caddyfile as it is, and not without one of its secrets.
func TestExampleProductionIsValid(t *testing.T) {
	validate := func() error {
		data, err := adapt(t, readDoc(t, production+"Caddyfile"))
		if err != nil {
			t.Fatal(err)
		}
		var config caddy.Config
		if err := json.Unmarshal(data, &config); err != nil {
			t.Fatal(err)
		}
		return caddy.Validate(&config)
	}
	productionSecrets(t)
	if err := validate(); err != nil {
		t.Error(err)
	}
	for _, without := range []struct{ name, is, err string }{
		{"SECRETS_DIR", t.TempDir(), "key spare: "}, {"OPENAI_KEY_1", "", "key main: "}, {"STATUS_PASSWORD", "", "password"},
	} {
		before := os.Getenv(without.name)
		t.Setenv(without.name, without.is)
		if err := validate(); err == nil || !strings.Contains(err.Error(), without.err) {
			t.Errorf("without %s: %v", without.name, err)
		}
		t.Setenv(without.name, before)
	}
}

// TestExampleProductionServes runs it, with other addresses: callers are asked for their token, providers stand in for
// each other, no log has a secret, and Prometheus is told.
func TestExampleProductionServes(t *testing.T) {
	openai := newUpstream(t).on("k1", fails(429, "slow down")).on("k2", fails(429, "slow down"))
	openrouter := newUpstream(t)
	token := productionSecrets(t)
	gateway, metrics := freeAddress(t), freeAddress(t)
	s := serve(t, "respond nothing") // it stops what is loaded in its place
	load := func() {
		data, err := adapt(t, substitute(t, readDoc(t, production+"Caddyfile"),
			"https://api.openai.com", openai.URL, "https://openrouter.ai/api/v1", openrouter.URL+"/api/v1",
			"llm.example.com {", "http://"+gateway+" {", "http://:9180", "http://"+metrics, "localhost:2019", s.admin,
			"\tlog {\n", "\tpersist_config off\n\tlog {\n\t\toutput sink\n",
		))
		if err != nil {
			t.Fatal(err)
		}
		if err := caddy.Load(data, true); err != nil {
			t.Fatal(err)
		}
		s.client.CloseIdleConnections()
	}
	load()
	if said := sink.ours(""); len(said) > 0 {
		t.Errorf("it is loaded with %s", said)
	}
	s.url = "http://" + gateway
	const path = "/v1/chat/completions"

	s.ask(http.MethodGet, "/config/").want(200, "{env.OPENAI_KEY_1}").lacks(token)
	for _, wrong := range []string{"Bearer other", "Bearer ", ""} {
		s.post(path, chat("gpt-4.1"), "Authorization", wrong).want(401, "Send the gateway's token")
	}
	if n := len(openai.asked("")) + len(openrouter.asked("")); n > 0 {
		t.Errorf("strangers caused %d calls", n)
	}
	s.post(path, chat("gpt-4.1"), "Authorization", "Bearer "+token).want(200)
	s.post(path+"?key="+token, chat("gpt-4.1"), "X-Api-Key", token).want(200)
	s.post(path, chat("claude"), "X-Goog-Api-Key", token).want(404)
	s.post(path, strings.Repeat("a", 32<<20+1), "Authorization", "bearer "+token).want(413, `"type": "invalid_request_error"`)
	for _, call := range openrouter.asked("") {
		if !strings.Contains(string(call.body), `"openai/gpt-4.1"`) {
			t.Errorf("it was asked for %s", call.body)
		}
	}
	s.do(s.client, s.request(http.MethodGet, "/healthz", nil)).want(200)
	for _, who := range []string{"", "Bearer " + token} {
		s.do(s.client, s.request(http.MethodGet, "/status", nil, "Authorization", who)).want(401).lacks("openrouter")
	}
	operator := "Basic " + base64.StdEncoding.EncodeToString([]byte("operator:look"))
	s.do(s.client, s.request(http.MethodGet, "/status", nil, "Authorization", operator)).want(200, "openrouter")

	// The access log names what served, and no token.
	var lines []gjson.Result
	eventually(t, "ten lines in the access log", func() bool {
		lines = sink.those("http.log.access", "handled request")
		return len(lines) == 10
	})
	served := 0
	for _, l := range lines {
		if l.Get("status").Int() == 200 && l.Get("request.method").String() == http.MethodPost {
			served++
			if l.Get("llm_model").String() != "gpt-4.1" || l.Get("llm_failover.provider").String() != "openrouter" {
				t.Error(l.Raw)
			}
		} else if strings.Contains(l.Raw, "{http.") {
			t.Errorf("a placeholder stays: %s", l.Raw)
		}
	}
	if served != 2 {
		t.Errorf("%d lines of served requests", served)
	}
	sink.mu.Lock()
	for _, line := range sink.lines {
		if strings.Contains(line, token) {
			t.Errorf("the token is logged: %s", line)
		}
	}
	sink.mu.Unlock()

	// What Prometheus reads has all that the dashboard and the alerts ask for.
	r := s.do(s.client, must(http.NewRequest(http.MethodGet, "http://"+metrics+"/metrics", nil))(t)).want(200)
	for _, q := range append(dashboardQueries(t), alertQueries(t)...) {
		for _, name := range ourMetrics.FindAllString(q.expr, -1) {
			// There is no headroom, and there are no tokens, as long as no upstream tells.
			if name != "llm_failover_headroom_remaining" && name != "llm_failover_tokens_total" && !strings.Contains(r.body, "\n"+name+"{") {
				t.Errorf("%s: there is no %s", q.where, name)
			}
		}
	}

	// A gateway without a token lets nobody in.
	t.Setenv("GATEWAY_TOKEN", "")
	load()
	for _, field := range []string{"", "Bearer ", "Bearer"} {
		s.post(path, chat("gpt-4.1"), "Authorization", field, "X-Api-Key", "").want(500, "The gateway has no token")
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestExampleProductionNames: the head of the Caddyfile names all that it reads, and the unit provides that.
func TestExampleProductionNames(t *testing.T) {
	head, config, _ := strings.Cut(readDoc(t, production+"Caddyfile"), "\n{\n")
	unit := readDoc(t, production+"caddy-llm.service")
	read := 0
	for _, m := range regexp.MustCompile(`\{env\.(\w+)\}|\{\$(\w+)|\}/(\w+_key\w*)\}`).FindAllStringSubmatch(config, -1) {
		read++
		name := m[1] + m[2] + m[3]
		if !regexp.MustCompile(`(?m)^#\t` + name + ` `).MatchString(head) {
			t.Errorf("the head does not name %s", name)
		}
		if m[3] != "" && !strings.Contains(unit, "\nLoadCredential="+name+":/etc/caddy-llm/secrets/"+name+"\n") || !strings.Contains(unit, name) {
			t.Errorf("the unit does not provide %s", name)
		}
	}
	if read < 5 {
		t.Errorf("only %d", read)
	}
	// The steps at the head of the unit bring there all that it reads.
	for _, file := range []string{"/usr/local/bin/caddy-llm", "/etc/caddy-llm/Caddyfile", "/etc/caddy-llm/env", "/etc/caddy-llm/secrets", "/etc/systemd/system"} {
		if !regexp.MustCompile(`(?m)^#\t(install|touch) .*` + file + `(/? |/?$)`).MatchString(unit) {
			t.Errorf("no step of the unit's makes %s", file)
		}
	}
}

// TestExampleDockerfile holds the image's build to the versions of go.mod, and to what .ci/run builds.
func TestExampleDockerfile(t *testing.T) {
	dockerfile, module, ci := readDoc(t, production+"Dockerfile"), readDoc(t, "go.mod"), readDoc(t, ".ci/run")
	of := func(text, pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s", pattern)
		}
		return m[1]
	}
	if got, want := of(dockerfile, `golang:(\d+\.\d+)\.`), of(module, `(?m)^go (\d+\.\d+)`); got != want {
		t.Errorf("Go %s, not %s", got, want)
	}
	want := of(module, `caddyserver/caddy/v2 (v\S+)`)
	for where, text := range map[string]string{"Dockerfile": dockerfile, ".ci/run": ci, "alerting": readDoc(t, alerting+"Caddyfile")} {
		if got := of(text, `build (v\S+)`); got != want {
			t.Errorf("%s: Caddy %s, not %s", where, got, want)
		}
	}
	for _, word := range []string{of(ci, `tags=(\S+)`), "github.com/llmfailover/caddy-llm-failover@v0.0.0=."} {
		if !strings.Contains(dockerfile, word) {
			t.Errorf("it lacks %s", word)
		}
	}
	if !strings.Contains(module, "github.com/caddyserver/xcaddy/cmd/xcaddy") {
		t.Error("go.mod pins no xcaddy")
	}
}

// query is an expression for Prometheus: what it shows of labels is what it must have.
type query struct {
	where, expr, shown string
}

var ourMetrics = regexp.MustCompile(`\bllm_failover_\w+`)

// dashboardQueries are all of the dashboard's.
func dashboardQueries(t *testing.T) (all []query) {
	t.Helper()
	data := readDoc(t, production+"grafana-dashboard.json")
	if !gjson.Valid(data) {
		t.Fatal("no JSON")
	}
	for _, panel := range gjson.Get(data, "panels").Array() {
		for _, target := range panel.Get("targets").Array() {
			all = append(all, query{panel.Get("title").String(), target.Get("expr").String(), target.Get("legendFormat").String()})
		}
	}
	return all
}

// alertRule is a rule as Prometheus reads it.
type alertRule struct {
	Alert       string
	Expr        string
	For         string
	KeepFiring  string `yaml:"keep_firing_for"`
	Labels      struct{ Severity string }
	Annotations struct{ Summary, Description, Runbook string }
}

func alertRules(t *testing.T) (all []alertRule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alertRule
		}
	}
	d := yaml.NewDecoder(strings.NewReader(readDoc(t, production+"alerts.yaml")))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func alertQueries(t *testing.T) (all []query) {
	t.Helper()
	for _, r := range alertRules(t) {
		all = append(all, query{r.Alert, r.Expr, r.Annotations.Summary + r.Annotations.Description + r.Annotations.Runbook})
	}
	return all
}

// labelsOfMetrics are the labels of each series of a pool, as Prometheus sees them.
func labelsOfMetrics(t *testing.T) map[string][]string {
	t.Helper()
	descs := make(chan *prometheus.Desc, 100)
	collector{}.Describe(descs)
	close(descs)
	labels := make(map[string][]string)
	for d := range descs {
		m := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([^}]*)\}`).FindStringSubmatch(d.String())
		of := append(strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' }), "instance", "job")
		if labels[m[1]] = of; strings.HasSuffix(m[1], "_seconds") && len(of) == 3 { // a histogram
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				labels[m[1]+suffix] = append([]string{"le"}, of...)
			}
			delete(labels, m[1])
		}
	}
	return labels
}

// TestExampleQueries: what the dashboard and the alerts ask for is there, with these labels and values. It knows as much
// of Prometheus's language as they use: a tool that reads all of it is run by TestExampleAlerts, where there is one.
func TestExampleQueries(t *testing.T) {
	var (
		selector = regexp.MustCompile(`(llm_failover_\w+)(?:\{([^}]*)\})?`)
		matcher  = regexp.MustCompile(`(\w+)(=~|!=|=|!~)"([^"]*)"`)
		grouping = regexp.MustCompile(`\b(?:by|on|without|ignoring) \(([^)]*)\)`)
		shown    = regexp.MustCompile(`\{\{ ?(?:\$labels\.)?(\w+) ?\}\}`)
		labels   = labelsOfMetrics(t)
		values   = map[string][]string{
			"status": statuses[:], "outcome": texts(outcomes[:]), "class": append(texts(Classes), classServed),
			"kind": {waitSameKey, waitBackoff, waitCooling, waitQueue}, "account": {""},
		}
		asked = make(map[string]bool)
	)
	for _, q := range append(dashboardQueries(t), alertQueries(t)...) {
		found := selector.FindAllStringSubmatch(q.expr, -1)
		if len(found) == 0 {
			t.Errorf("%s asks for none of our metrics: %s", q.where, q.expr)
		}
		wanted := make(map[string]bool) // the labels besides those of the selectors
		grouped := grouping.FindAllStringSubmatch(q.expr, -1)
		for _, g := range grouped {
			for label := range strings.SplitSeq(g[1], ", ") {
				wanted[label] = true
			}
		}
		for _, m := range shown.FindAllStringSubmatch(q.shown, -1) {
			if len(grouped) > 0 && !wanted[m[1]] {
				t.Errorf("%s shows %s, which it drops", q.where, m[1])
			}
			wanted[m[1]] = true
		}
		for _, m := range found {
			asked[m[1]] = true
			of, ok := labels[m[1]]
			if !ok {
				t.Errorf("%s: there is no %s", q.where, m[1])
				continue
			}
			for label := range wanted {
				if !slices.Contains(of, label) {
					t.Errorf("%s: %s has no label %s", q.where, m[1], label)
				}
			}
			for _, match := range matcher.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(of, match[1]) {
					t.Errorf("%s: %s has no label %s", q.where, m[1], match[1])
				}
				for value := range strings.SplitSeq(match[3], "|") {
					if match[3] != "$pool" && !slices.Contains(values[match[1]], value) {
						t.Errorf("%s: %s is never %q", q.where, match[1], value)
					}
				}
			}
		}
	}
	// The dashboard shows all there is.
	for name := range labels {
		if of := strings.TrimSuffix(name, "_bucket"); !asked[name] && !strings.HasSuffix(name, "_sum") && !strings.HasSuffix(name, "_count") {
			t.Errorf("nothing shows %s", of)
		}
	}
}

// TestExampleDashboard: its panels have a place of their own, and speak to the data source that is chosen.
func TestExampleDashboard(t *testing.T) {
	dashboard := gjson.Parse(readDoc(t, production+"grafana-dashboard.json"))
	var variables []string
	for _, v := range dashboard.Get("templating.list.#.name").Array() {
		variables = append(variables, v.String())
	}
	if !slices.Equal(variables, []string{"datasource", "pool"}) {
		t.Errorf("the variables %s", variables)
	}
	taken := make(map[[2]int64]string)
	ids := make(map[int64]bool)
	for _, p := range dashboard.Get("panels").Array() {
		title, pos := p.Get("title").String(), p.Get("gridPos")
		if id := p.Get("id").Int(); ids[id] {
			t.Errorf("%s: the id %d is taken", title, id)
		} else {
			ids[id] = true
		}
		if pos.Get("x").Int()+pos.Get("w").Int() > 24 {
			t.Errorf("%s is too wide", title)
		}
		for x := pos.Get("x").Int(); x < pos.Get("x").Int()+pos.Get("w").Int(); x++ {
			for y := pos.Get("y").Int(); y < pos.Get("y").Int()+pos.Get("h").Int(); y++ {
				if other := taken[[2]int64{x, y}]; other != "" {
					t.Fatalf("%s lies on %s", title, other)
				}
				taken[[2]int64{x, y}] = title
			}
		}
		if p.Get("type").String() == "row" {
			continue
		}
		if p.Get("description").String() == "" {
			t.Errorf("%s is not described", title)
		}
		for _, uid := range append(p.Get("targets.#.datasource.uid").Array(), p.Get("datasource.uid")) {
			if uid.String() != "${datasource}" {
				t.Errorf("%s asks %q", title, uid.String())
			}
		}
	}
	// Each status has a colour, in the table and over time.
	for _, panel := range []string{"Keys now", "Keys over time"} {
		raw := dashboard.Get(fmt.Sprintf(`panels.#(title=="%s").fieldConfig`, panel)).Raw
		for _, status := range statuses {
			if !strings.Contains(raw, `"text": "`+status+`"`) {
				t.Errorf("%s does not know %s", panel, status)
			}
		}
	}
}

// TestExampleAlerts: each says what to do, with commands that there are; its thresholds are those of the Caddyfile.
func TestExampleAlerts(t *testing.T) {
	commands := make(map[string]bool)
	for _, c := range append(operateCommands(), statusCommand()) {
		commands[c.Name()] = true
	}
	names := make(map[string]bool)
	for _, r := range alertRules(t) {
		if names[r.Alert] {
			t.Errorf("there are two %s", r.Alert)
		}
		names[r.Alert] = true
		if r.Labels.Severity != "page" && r.Labels.Severity != "ticket" || r.Annotations.Summary == "" || r.Annotations.Description == "" {
			t.Errorf("%s: %+v", r.Alert, r)
		}
		for _, d := range []string{r.For, r.KeepFiring} {
			if d == "" {
				continue
			}
			if _, err := time.ParseDuration(d); err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			}
		}
		found := regexp.MustCompile("`caddy llm-failover (\\w+)").FindAllStringSubmatch(r.Annotations.Runbook, -1)
		if len(found) == 0 {
			t.Errorf("%s names no command", r.Alert)
		}
		for _, m := range found {
			if !commands[m[1]] {
				t.Errorf("%s: there is no command %s", r.Alert, m[1])
			}
		}
	}
	rules, config := readDoc(t, production+"alerts.yaml"), readDoc(t, production+"Caddyfile")
	if !strings.Contains(rules, "llm_failover_queue_length > 100\n") || !strings.Contains(config, " queue 200 ") {
		t.Error("the alert is not at half of the queue")
	}
	if !strings.Contains(rules, fmt.Sprintf("0.8 * %d\n", 256<<20)) || regexp.MustCompile(`(?m)^\s+held `).MatchString(config) {
		t.Error("the alert is not at what is held by default")
	}
}

func init() { caddy.RegisterModule(new(execHandler)) }

// execHandler stands in for the module of github.com/mholt/caddy-events-exec, which examples/alerting needs and which
// is no part of this build: the same name and words. It waits for the command.
type execHandler struct {
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
}

func (*execHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.exec", New: func() caddy.Module { return new(execHandler) }}
}

func (e *execHandler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.NextArg() {
		return d.ArgErr()
	}
	e.Command, e.Args = d.Val(), d.RemainingArgs()
	return nil
}

// Handle implements caddyevents.Handler.
func (e *execHandler) Handle(ctx context.Context, _ caddy.Event) error {
	r := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	args := make([]string, len(e.Args))
	for i, arg := range e.Args {
		args[i] = r.ReplaceAll(arg, "")
	}
	out, err := exec.CommandContext(ctx, e.Command, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", e.Command, err, out)
	}
	return nil
}

var _ caddyevents.Handler = (*execHandler)(nil)
