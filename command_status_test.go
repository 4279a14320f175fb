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
		"turned off":         {"--address off", "the address of the admin API is off"},
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
