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
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

// statesOf draws a pool p with a provider x that has one key, and returns the columns state, reason, since and until of it.
func statesOf(t *testing.T, now time.Time, p providerView, k keyView) (lines []string) {
	t.Helper()
	if k.Account == "" {
		k.Account = "k"
	}
	if k.Circuit.State == "" {
		k.Circuit.State = circuitClosed
	}
	p.Keys = map[string]keyView{"k": k}
	table, err := tableOf([]byte(toJSON(t, map[string]any{"pools": map[string]poolView{"p": {map[string]providerView{"x": p}}}})), now, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSuffix(table, "\n"), "\n")[2:] {
		cells := regexp.MustCompile(`  +`).Split(strings.TrimSpace(line), -1)
		if len(lines) == 0 {
			if len(cells) != len(statusHead) {
				t.Fatalf("%d columns in %q", len(cells), line)
			}
			cells = cells[stateColumn : stateColumn+4]
		}
		lines = append(lines, strings.Join(cells, "|"))
	}
	return lines
}

func TestStatusSaysWhatStandsInTheWay(t *testing.T) {
	now := time.Date(2026, 5, 1, 3, 0, 0, 0, time.Local)
	b := func(reason Class, left time.Duration) *benchView {
		return &benchView{Reason: reason, Since: now.Add(-time.Minute), Until: now.Add(left), Remaining: left.Milliseconds(), Strikes: 1}
	}
	earlier, soon := now.Add(-time.Minute), now.Add(30*time.Second)
	failed := &errorView{Class: Timeout, At: now.Add(-90 * time.Second)}
	many := make(map[string]benchView)
	for i := range 9 {
		many[fmt.Sprint("m", i)] = *b(ModelUnavailable, time.Minute)
	}
	for _, tc := range []struct {
		name     string
		provider providerView
		key      keyView
		want     []string
	}{
		{"nothing", providerView{}, keyView{Status: "available"}, []string{"available|-|-|-"}},
		{
			"a halted provider", providerView{Status: "halted", Halt: b(ProviderUnavailable, time.Minute)}, keyView{Status: "available"},
			[]string{"provider halted|provider_unavailable|02:59:00|03:01:00 (1m)"},
		},
		{
			"the halt of its own account", providerView{Accounts: map[string]accountView{"k": {Halt: b(BillingError, 59*time.Second)}}}, keyView{Status: "available"},
			[]string{"account halted|billing_error|02:59:00|03:00:59 (59s)"},
		},
		{
			"the halt of a shared account", providerView{Accounts: map[string]accountView{"team": {Halt: b(BillingError, time.Minute)}}}, keyView{Status: "available", Account: "team"},
			[]string{"account team halted|billing_error|02:59:00|03:01:00 (1m)"},
		},
		{
			"a provider that is halted since all its accounts are",
			providerView{Status: "halted", Halt: b(BillingError, time.Minute), Accounts: map[string]accountView{"k": {Halt: b(BillingError, time.Minute)}}},
			keyView{Status: "available"}, []string{"account halted|billing_error|02:59:00|03:01:00 (1m)"},
		},
		{
			"another account's halt", providerView{Accounts: map[string]accountView{"other": {Halt: b(BillingError, time.Minute)}}}, keyView{Status: "available"},
			[]string{"available|-|-|-"},
		},
		{"a rejected key", providerView{}, keyView{Status: "rejected", Rejected: b(AuthError, 10*time.Minute)}, []string{"rejected|auth_error|02:59:00|03:10:00 (10m)"}},
		{
			"a rejected key that is due", providerView{}, keyView{Status: "rejected", Rejected: b(AuthError, 0)},
			[]string{"rejected|auth_error|02:59:00|the next request"},
		},
		{
			"an open circuit", providerView{}, keyView{Status: "open", Circuit: circuitView{circuitOpen, 3, Timeout, &earlier, &soon}, LastError: failed},
			[]string{"open|timeout|02:59:00|03:00:30 (30s)"},
		},
		{
			"a circuit that wants a probe", providerView{}, keyView{Status: "half_open", Circuit: circuitView{circuitHalfOpen, 3, Timeout, &earlier, &now}, LastError: failed},
			[]string{"half_open|timeout|02:59:00|the next request"},
		},
		{"a cooldown", providerView{}, keyView{Status: "cooling", Cooldown: b(RateLimit, 90*time.Minute)}, []string{"cooling|rate_limit|02:59:00|04:30:00 (1h30m)"}},
		{
			"a cooling account", providerView{Accounts: map[string]accountView{"team": {Cooldown: b(RateLimit, 48*time.Hour)}}}, keyView{Status: "cooling", Account: "team"},
			[]string{"account team cooling|rate_limit|02:59:00|2026-05-03 03:00:00 (48h)"},
		},
		{"a disabled key", providerView{}, keyView{Status: "disabled"}, []string{"disabled|by an operator|-|it is enabled"}},
		{
			"a model", providerView{}, keyView{Status: "available", Models: map[string]benchView{"big": *b(ModelUnavailable, time.Minute)}},
			[]string{"available|-|-|-", "model big benched|model_unavailable|02:59:00|03:01:00 (1m)"},
		},
		{
			"many models", providerView{}, keyView{Status: "available", Models: many},
			[]string{
				"available|-|-|-", "model m0 benched|model_unavailable|02:59:00|03:01:00 (1m)", "model m1 benched|model_unavailable|02:59:00|03:01:00 (1m)",
				"model m2 benched|model_unavailable|02:59:00|03:01:00 (1m)", "6 more models benched|-|-|-",
			},
		},
		{
			"a model's name that would steer the terminal", providerView{},
			keyView{Status: "available", Models: map[string]benchView{"a\x1b[2J\nb" + strings.Repeat("c", 99): *b(ModelUnavailable, time.Minute)}},
			[]string{"available|-|-|-", `model a\x1b[2J\nb` + strings.Repeat("c", 28) + "… benched|model_unavailable|02:59:00|03:01:00 (1m)"},
		},
		{
			"several things at once", providerView{Halt: b(Overloaded, 5*time.Second), Accounts: map[string]accountView{"k": {Halt: b(BillingError, time.Minute)}}},
			keyView{
				Status: "disabled", Rejected: b(AuthError, time.Minute), Circuit: circuitView{circuitOpen, 3, Timeout, &earlier, &soon}, LastError: failed, Cooldown: b(RateLimit, time.Second),
				Models: map[string]benchView{"big": *b(ModelUnavailable, time.Minute)},
			},
			[]string{
				"disabled|by an operator|-|it is enabled", "account halted|billing_error|02:59:00|03:01:00 (1m)", "rejected|auth_error|02:59:00|03:01:00 (1m)",
				"open|timeout|02:59:00|03:00:30 (30s)", "provider halted|overloaded|02:59:00|03:00:05 (5s)", "cooling|rate_limit|02:59:00|03:00:01 (1s)",
				"model big benched|model_unavailable|02:59:00|03:01:00 (1m)",
			},
		},
		{
			"what lasts longest comes first", providerView{Halt: b(Overloaded, 5*time.Second)}, keyView{Status: "cooling", Cooldown: b(RateLimit, time.Hour)},
			[]string{"cooling|rate_limit|02:59:00|04:00:00 (1h)", "provider halted|overloaded|02:59:00|03:00:05 (5s)"},
		},
		{
			"what waits for a request only comes last", providerView{},
			keyView{Status: "rejected", Rejected: b(AuthError, 0), Circuit: circuitView{circuitHalfOpen, 3, Timeout, &earlier, &soon}, Cooldown: b(RateLimit, time.Second)},
			[]string{"cooling|rate_limit|02:59:00|03:00:01 (1s)", "rejected|auth_error|02:59:00|the next request", "half_open|timeout|02:59:00|the next request"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := statesOf(t, now, tc.provider, tc.key); strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

func TestStatusTableIsAligned(t *testing.T) {
	now := time.Now()
	answer := []byte(toJSON(t, map[string]any{"pools": map[string]poolView{
		"b": {map[string]providerView{"ärger": {Keys: map[string]keyView{"鍵": {
			Account: "鍵", Status: "open", Circuit: circuitView{circuitOpen, 3, Timeout, &now, &now}, InFlight: 7,
			LastError: &errorView{RateLimit, 429, now.Add(-12 * time.Second)}, Totals: totalsView{12, 3},
		}}}}},
		"a-longer-name": {map[string]providerView{"x": {Keys: map[string]keyView{"a": {Account: "a", Status: "available"}, "long-name": {Account: "long-name", Status: "available"}}}}},
	}}))
	table, err := tableOf(answer, now, false)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(table, "\n"), "\n")
	if len(lines) != 5 || lines[0] != "1 of 3 keys set aside" || !strings.HasPrefix(lines[2], "a-longer-name  x         a ") || !strings.HasPrefix(lines[4], "b              ärger     鍵 ") {
		t.Errorf("not in order:\n%s", table)
	}
	for i, head := range statusHead {
		at := strings.Index(lines[1], head)
		for _, l := range lines[2:] {
			// what stands before the cell, and a space before that
			before := cutAt(l, at)
			if cell := strings.TrimPrefix(l, before); strings.HasPrefix(cell, " ") || i > 0 && !strings.HasSuffix(before, " ") {
				t.Errorf("%s is not aligned:\n%s", head, table)
			}
		}
	}
	if !strings.Contains(table, "3 of 12") || !strings.Contains(table, "rate_limit 429, 12s ago") {
		t.Errorf("lacks figures:\n%s", table)
	}
	coloured, err := tableOf(answer, now, true)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(coloured, "\x1b[31mopen\x1b[0m") || !strings.Contains(coloured, "\x1b[32mavailable\x1b[0m") {
		t.Errorf("no colours: %q", coloured)
	}
	if bare := colourCodes.ReplaceAllString(coloured, ""); bare != table {
		t.Errorf("colours move the columns:\n%s", bare)
	}
	if wantsColours(new(bytes.Buffer)) {
		t.Error("colours for what is no terminal")
	}
	if null := must(os.Open(os.DevNull))(t); isTerminal(null) || null.Close() != nil {
		t.Error("a terminal that is none")
	}
}

// cutAt returns what of a line stands before a column.
func cutAt(line string, columns int) string {
	for i := range line {
		if widthOf(line[:i]) == columns {
			return line[:i]
		}
	}
	return line
}

func TestWidthOf(t *testing.T) {
	for text, want := range map[string]int{"": 0, "key": 3, "ärger": 5, "a\u0308rger": 5, "鍵": 2, "ＡＢ": 4, "\x1b[31mopen\x1b[0m": 4, "open\n": 4} {
		if got := widthOf(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestStatusShowsFirstWhatIsSetAside: as the status page does, and in its pool.
func TestStatusShowsFirstWhatIsSetAside(t *testing.T) {
	now := time.Now()
	b := &benchView{Reason: RateLimit, Since: now, Until: now.Add(time.Minute)}
	keys := func(names string) map[string]keyView {
		all := make(map[string]keyView)
		for name := range strings.FieldsSeq(names) {
			k := keyView{Account: name, Status: "available"}
			switch name[:1] {
			case "c":
				k.Status, k.Cooldown = "cooling", b
			case "d":
				k.Status = "disabled"
			case "m":
				k.Models = map[string]benchView{"big": *b}
			case "r":
				k.Status, k.Rejected = "rejected", b
			}
			all[name] = k
		}
		return all
	}
	table, err := tableOf([]byte(toJSON(t, map[string]any{"pools": map[string]poolView{
		"p": {map[string]providerView{"x": {Keys: keys("a1 c1 d1 r1")}, "y": {Keys: keys("a2 c2 m2 r2")}}},
		"q": {map[string]providerView{"x": {Keys: keys("a3 r3")}}},
	}})), now, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^([pq])  +\S+  +(\S+)`).FindAllStringSubmatch(table, -1) {
		got = append(got, m[1]+"/"+m[2])
	}
	if want := "p/r1 p/r2 p/c1 p/c2 p/m2 p/d1 p/a1 p/a2 q/r3 q/a3"; strings.Join(got, " ") != want || !strings.HasPrefix(table, "6 of 10 keys set aside\nPOOL ") {
		t.Errorf("want %s, got\n%s", want, table)
	}
}

func TestFit(t *testing.T) {
	const table = "head\none\ntwo\nthree\n"
	for _, tc := range []struct {
		table         string
		columns, rows int
		want          string
	}{
		{table, 80, 9, table},
		{table, 80, 4, table},
		{table, 80, 3, "head\none\n… 2 more lines\n"},
		{table, 80, 2, "head\n… 3 more lines\n"},
		{table, 80, 1, "… 4 more lines\n"},
		{table, 80, -1, "… 4 more lines\n"},
		{table, 4, 5, table}, // three takes two rows
		{table, 4, 4, "head\none\ntwo\n… 1 more lines\n"},
		{"\x1b[31mhead\x1b[0m\none\n", 4, 2, "\x1b[31mhead\x1b[0m\none\n"}, // colours take no place
	} {
		if got := fit(tc.table, tc.columns, tc.rows); got != tc.want {
			t.Errorf("%d columns, %d rows: %q, want %q", tc.columns, tc.rows, got, tc.want)
		}
	}
}

// flagsOf parses a command line.
func flagsOf(t *testing.T, cmd *cobra.Command, args ...string) caddycmd.Flags {
	t.Helper()
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return caddycmd.Flags{FlagSet: cmd.Flags()}
}

func shownStatus(t *testing.T, asJSON bool, args ...string) (string, error) {
	t.Helper()
	api, err := adminOf(flagsOf(t, statusCommand(), args...))
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = (&statusScreen{w: &out, api: api, json: asJSON}).show()
	return string(leaks.look("status", out.Bytes())), err
}

func TestStatusOfARunningCaddy(t *testing.T) {
	a := newUpstream(t).on("k1", limited("Retry-After", "20")).on("k2", fails(402, "Insufficient Balance")).on("k3", fails(401, "Incorrect API key provided")).
		on("k4", says(404, `{"error":{"message":"The model m does not exist","type":"invalid_request_error","code":"model_not_found"}}`))
	s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2", "k3", "k4", "k5")+quick+"}")
	s.post("/v1/chat/completions", chat("m")).want(200, "from-k5")

	file := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(file, []byte("{\n\tadmin "+s.admin+"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"--address", s.admin}, {"--config", file}} {
		table, err := shownStatus(t, false, flags...)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`default +default +k1 +cooling +rate_limit +\S+ +\S+ \((20|1\d)s\) +1 of 1 +0 +rate_limit 429, `,
			`default +default +k2 +account halted +billing_error +\S+ +\S+ \((1m|5\ds)\) +1 of 1 +0 +billing_error 402, `,
			`default +default +k3 +rejected +auth_error +\S+ +\S+ \((10m|9m5\ds)\) `,
			`default +default +k4 +available .*\n +model m benched +model_unavailable +\S+ +\S+ \((1m|5\ds)\)`,
			`default +default +k5 +available +- +- +- +0 of 1 +0 +-\n`,
		} {
			if !regexp.MustCompile(want).MatchString(table) {
				t.Errorf("%s: no %s in\n%s", flags[0], want, table)
			}
		}
	}
	if text, err := shownStatus(t, true, "--address", s.admin); err != nil || !json.Valid([]byte(text)) || !strings.HasPrefix(text, `{"pools":{"default":`) {
		t.Error(text, err)
	}
}

// operated runs one of the operator's commands.
func operated(t *testing.T, s *server, action, what string) (string, error) {
	t.Helper()
	for i, cmd := range operateCommands() {
		if cmd.Name() == action {
			var out bytes.Buffer
			err := operatorActions[i].run(&out, flagsOf(t, cmd, what, "--address", s.admin))
			if err != nil {
				leaks.look("error", []byte(err.Error()))
			}
			return string(leaks.look(action, out.Bytes())), err
		}
	}
	t.Fatal("no command", action)
	return "", nil
}

func TestOperatorsCommands(t *testing.T) {
	a := newUpstream(t).on("k1", fails(402, "Insufficient Balance"), ok)
	s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+quick+"}\n")
	post := func(from string) {
		t.Helper()
		s.post("/v1/chat/completions", chat("m")).want(200, from)
	}
	post("from-k2")
	for _, step := range []struct{ action, what, shows, serves string }{
		{"disable", "default/default/k1", `k1 +disabled .*\n +account halted`, "from-k2"},
		{"reset", "default/default", `k1 +disabled .*\ndefault +default +k2`, "from-k2"},
		{"enable", "default/default/k1", `k1 +available`, "from-k1"},
		{"disable", "default/default/k1", `k1 +disabled`, "from-k2"},
		{"reset", "default", `k1 +disabled`, "from-k2"},
		{"enable", "default/default/k1", `k1 +available`, "from-k1"},
		{"reset", "default/default/k1", `k1 +available`, "from-k1"},
	} {
		table, err := operated(t, s, step.action, step.what)
		if err != nil || !regexp.MustCompile(step.shows).MatchString(table) || !strings.Contains(table, " keys set aside\nPOOL ") {
			t.Errorf("%s %s: %v, no %s in\n%s", step.action, step.what, err, step.shows, table)
		}
		post(step.serves)
	}
	for _, tc := range []struct{ action, what, want string }{
		{"reset", "none", `there is no pool named "none"`},
		{"reset", "default/none", `there is no provider named "none"`},
		{"disable", "default/default/n%ne", `there is no key named "n%ne"`},
	} {
		if table, err := operated(t, s, tc.action, tc.what); err == nil || err.Error() != tc.want || table != "" {
			t.Errorf("%s %s: %v, want %s", tc.action, tc.what, err, tc.want)
		}
	}
}

// TestOperatorsNameWhatTheyMean: an empty part, such as a variable of the shell's that is not set, makes a key's command
// one for its provider.
func TestOperatorsNameWhatTheyMean(t *testing.T) {
	for _, tc := range []struct {
		command string
		want    string // the API's path; empty: it is refused
	}{
		{"reset p", "/p/reset"},
		{"reset p/x", "/p/x/reset"},
		{"reset p/x/k", "/p/x/k/reset"},
		{"reset p/x/k%?", "/p/x/k%25%3F/reset"},
		{"disable p/x/k", "/p/x/k/disable"},
		{"enable p/x/k", "/p/x/k/enable"},
		{"reset", ""},
		{"reset p x", ""},
		{"reset /", ""},
		{"reset p/", ""},
		{"reset p/x/", ""},
		{"reset p//k", ""},
		{"reset p/x/.", ""},
		{"reset p/..", ""},
		{"reset p/x/k/k", ""},
		{"disable p", ""},
		{"disable p/x", ""},
		{"enable p/x/", ""},
	} {
		words := strings.Fields(tc.command)
		for _, o := range operatorActions {
			if o.action != words[0] {
				continue
			}
			path, err := o.path(words[1:])
			if path != tc.want || (err == nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), "name what to "+o.action+": <pool>") {
				t.Errorf("%s: %q %v, want %q", tc.command, path, err, tc.want)
			}
		}
	}
}

// answering returns the address of a server that is no Caddy.
func answering(t *testing.T, status int, fields, body string) string {
	t.Helper()
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for field := range strings.Lines(fields) {
			name, value, _ := strings.Cut(field, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(u.Close)
	return strings.TrimPrefix(u.URL, "http://")
}

func TestStatusErrors(t *testing.T) {
	s := serve(t, "respond hello")
	file := func(content string) string {
		t.Helper()
		name := filepath.Join(t.TempDir(), "Caddyfile")
		if content != "" && os.WriteFile(name, []byte(content), 0o600) != nil {
			t.Fatal("not written")
		}
		return name
	}
	const noAPI = "is no admin API of Caddy; --address says where it is"
	for name, tc := range map[string]struct{ flags, want string }{
		"no pool":            {"--address " + s.admin, "has no llm_failover pool"},
		"a site's port":      {"--address " + strings.TrimPrefix(s.url, "http://"), noAPI},
		"nobody there":       {"--address " + freeAddress(t), "no answer from Caddy's admin API at"},
		"several addresses":  {"--address 127.0.0.1:1-9", "invalid admin address"},
		"no port":            {"--address localhost", "it needs one port"},
		"HTTPS":              {"--address https://localhost:2019", "speaks plain HTTP"},
		"without us":         {"--address " + answering(t, 404, "", "404 page not found"), "or that of a Caddy without llm_failover"},
		"a page":             {"--address " + answering(t, 200, "", "<html>"), noAPI},
		"an empty answer":    {"--address " + answering(t, 200, "", ""), noAPI},
		"other JSON":         {"--address " + answering(t, 200, "", `{"object": "list"}`), noAPI},
		"another 403":        {"--address " + answering(t, 403, "", "go away"), "(HTTP 403) " + noAPI},
		"another's error":    {"--address " + answering(t, 500, "", `{"error": {"message": "x"}}`), "(HTTP 500) " + noAPI},
		"a steering error":   {"--address " + answering(t, 500, "", `{"error": "a\u001b[2Jb"}`), "a [2Jb"},
		"somewhere else":     {"--address " + answering(t, 307, "Location: http://"+s.admin+"/llm_failover", ""), "(HTTP 307) " + noAPI},
		"a missing file":     {"--config " + file(""), "Caddyfile"},
		"a config without":   {"--config " + file("{\n\tadmin off\n}\n"), "has admin off"},
		"one with a pool":    {"--config " + file("{\n\tadmin off\n}\n") + " --address " + s.admin, "has no llm_failover pool"},
		"a URL as address":   {"--address http://" + s.admin + "/", "has no llm_failover pool"},
		"turned off":         {"--address off", "turns the admin API off"},
		"a pool of no shape": {"--address " + answering(t, 200, "", `{"pools": {"p": 3}}`), "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := shownStatus(t, false, strings.Fields(tc.flags)...)
			if err == nil || !strings.Contains(err.Error(), tc.want) || text != "" {
				t.Errorf("%v, want %s", err, tc.want)
			}
			if code, _ := exitCode(err); code == caddy.ExitCodeSuccess {
				t.Error("exit code 0")
			}
		})
	}
}

// TestStatusHasLimits: whatever listens at the address, the command ends.
func TestStatusHasLimits(t *testing.T) {
	ended := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for piece := bytes.Repeat([]byte(" "), 1<<20); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	defer silent.Close()
	defer endless.Close()
	defer close(ended)
	for _, tc := range []struct {
		url      string
		patience time.Duration
		want     string
	}{
		{silent.URL, time.Millisecond, "it was silent for 1ms"},
		{endless.URL, time.Minute, "is larger than"},
	} {
		api := adminAt(t, tc.url)
		if api.http.Timeout != adminPatience {
			t.Errorf("it waits for %v", api.http.Timeout)
		}
		api.http.Timeout = tc.patience
		if _, err := api.ask(http.MethodGet, ""); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
}

func adminAt(t *testing.T, address string) *adminClient {
	t.Helper()
	return must(newAdminClient(address))(t)
}

// TestStatusAsksAsCaddyDoes: at a socket, whose permissions may stand in its address, there is no Origin.
func TestStatusAsksAsCaddyDoes(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	for _, tc := range []struct{ network, listen, address, host, origin string }{
		{"tcp", "127.0.0.1:0", "%s", "%s", "http://%s"},
		{"tcp", "127.0.0.1:0", "tcp4/%s", "%s", "http://%s"},
		{"unix", socket, "unix/%s|0600", "127.0.0.1", ""},
	} {
		l, err := net.Listen(tc.network, tc.listen)
		if err != nil {
			t.Fatal(err)
		}
		var connections atomic.Int32
		u := &httptest.Server{Listener: l, Config: &http.Server{
			ConnState: func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections.Add(1)
				}
			},
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, `{"pools": {}, "host": %q, "origin": %q, "asked": %q}`, r.Host, r.Header.Get("Origin"), r.Method+" "+r.URL.Path)
			}),
		}}
		u.Start()
		in := func(pattern string) string { return strings.ReplaceAll(pattern, "%s", l.Addr().String()) }
		api := adminAt(t, in(tc.address))
		want := fmt.Sprintf(`{"pools": {}, "host": %q, "origin": %q, "asked": "POST /llm_failover/p/reset"}`, in(tc.host), in(tc.origin))
		for range 3 {
			if answer, err := api.ask(http.MethodPost, "/p/reset"); err != nil || string(answer) != want {
				t.Errorf("%s: %s %v, want %s", tc.address, answer, err, want)
			}
		}
		u.Close()
		if n := connections.Load(); n != 1 {
			t.Errorf("%s: %d connections", tc.address, n)
		}
	}
}

// frames hands on what is written, write by write.
type frames chan string

func (f frames) Write(b []byte) (int, error) {
	f <- string(leaks.look("status", b))
	return len(b), nil
}

func TestWatchSurvivesWithoutTheAPI(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		t.Run(fmt.Sprint("in place ", inPlace), func(t *testing.T) {
			site := pair(newUpstream(t))
			s := serve(t, site)
			shown, ticks, ended := make(frames), make(chan time.Time), make(chan error)
			screen := &statusScreen{w: shown, api: adminAt(t, s.admin), dated: true}
			rows := 24
			if inPlace {
				screen.size = func() (int, int, error) { return 200, rows, nil }
			}
			go func() { ended <- screen.watch(ticks) }()
			next := func() string {
				ticks <- time.Now()
				return <-shown
			}
			check := func(frame string, has bool, word string) {
				t.Helper()
				if strings.Contains(frame, word) != has {
					t.Errorf("%q in %q: want %t", word, frame, has)
				}
			}
			first := next()
			dated := regexp.MustCompile(`\d\d:\d\d:\d\d  0 of 2 keys set aside`).FindString(first)
			check(first, true, cmp.Or(dated, "a time"))
			check(first, true, "k1")
			check(first, inPlace, "\x1b[2J")
			screen.api = adminAt(t, freeAddress(t)) // the goroutine waits for a tick
			gone := next()
			screen.api = adminAt(t, s.admin)
			check(gone, true, "no answer from Caddy's admin API")
			check(gone, inPlace, "k1") // the last that was seen stays on the screen, with its time
			check(gone, inPlace, dated)
			check(gone, inPlace, "\x1b[H")
			if s.load("respond hello") != nil {
				t.Fatal("not loaded")
			}
			check(next(), true, "has no llm_failover pool")
			s.reload(site)
			again := next()
			check(again, true, "k1")
			check(again, false, "no ")
			check(again, false, "\x1b[2J")
			rows = 4 // the terminal became smaller; one row is the cursor's
			small := next()
			check(small, inPlace, "… 2 more lines")
			check(small, !inPlace, "k2")
			close(ticks)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWatchPrintsJSON(t *testing.T) {
	s := serve(t, pair(newUpstream(t)))
	var out bytes.Buffer
	ticks := make(chan time.Time, 2)
	ticks <- time.Now()
	ticks <- time.Now()
	close(ticks)
	if err := (&statusScreen{w: &out, api: adminAt(t, s.admin), json: true}).watch(ticks); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 2 || !json.Valid([]byte(lines[0])) || !json.Valid([]byte(lines[1])) {
		t.Errorf("want a line of JSON each time, got %q", lines)
	}
}
