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
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

// simulated runs the command with these arguments.
func simulated(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := simulateCommand()
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := simulateTo(&out, caddycmd.Flags{FlagSet: cmd.Flags()})
	return out.String(), err
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSimulateFixture(t *testing.T) {
	out, err := simulated(t, "--fixture", "backoff")
	if err != nil || !strings.Contains(out, "480    94 (78.3 %)  120   2438 ms") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = simulated(t, "--fixture", "backoff", "--json")
	if err != nil || gjson.Get(out, "rows.2.done").Int() != 94 || gjson.Get(out, "rows.1.last_ms").Int() != 1750 {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := simulated(t, "--fixture", "nonsense"); err == nil || !strings.Contains(err.Error(), "there is backoff") {
		t.Error(err)
	}
}

const simulatedConfig = `:8080 {
	llm_failover https://llm.example {
		keys {
			k1 {env.NOT_SET_ANYWHERE}
			k2 {file./not/there}
		}
		header_up X-Who {http.request.remote.host}
		select sticky {http.request.remote.host}
		transport http {
			tls_server_name other.example
		}
	}
}`

// TestSimulateConfig: a config runs as it is, without its secrets, whatever else is in it.
func TestSimulateConfig(t *testing.T) {
	image := filepath.Join(t.TempDir(), "out.svg")
	file := configFile(t, simulatedConfig)
	out, err := simulated(t, "--config", file, "--adapter", "caddyfile", "--scenario", "dead-key", "--plot", image, "--callers", "50")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"dead-key: ", "50 callers", "callers alone", "through the gateway", "50 (100.0 %)"} {
		if !strings.Contains(out, words) {
			t.Errorf("no %q in\n%s", words, out)
		}
	}
	drawn, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer drawn.Close()
	for d := xml.NewDecoder(drawn); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	first, err := simulated(t, "--config", file, "--scenario", "flapping", "--json", "--seed", "7")
	if err != nil || gjson.Get(first, "runs.1.requests").Int() != 600 || gjson.Get(first, "seed").Int() != 7 {
		t.Errorf("%v\n%s", err, first)
	}
	if again, _ := simulated(t, "--config", file, "--scenario", "flapping", "--json", "--seed", "7"); again != first {
		t.Error("the same seed gave other figures")
	}
	if other, _ := simulated(t, "--config", file, "--scenario", "flapping", "--json", "--seed", "8"); other == first {
		t.Error("another seed gave the same figures")
	}
}

// TestSimulateDialects: the callers ask for what the pool serves.
func TestSimulateDialects(t *testing.T) {
	scenario := configFile(t, "{callers: 20, stream: true, phases: [{key: '#1', error: reset, delay: 1ms}]}")
	for _, lines := range []string{
		"dialects messages", "dialects responses", "dialects gemini", "dialects chat", "models {\ngpt-* other\n}", "dialects gemini\nmodels {\nbig gemini-x\n}", "auth header X-Key \"Key {key}!\"",
	} {
		file := configFile(t, ":8080 {\nllm_failover {\nprovider a https://llm.example {\nkeys {\nk1 {env.A}\nk2 {env.B} {\nmodels *\n}\n}\n"+lines+"\n}\n}\n}")
		out, err := simulated(t, "--config", file, "--scenario", scenario, "--json")
		if err != nil || gjson.Get(out, "runs.1.done").Int() != 20 {
			t.Errorf("%s: %v, %s done", lines, err, gjson.Get(out, "runs.1.done"))
		}
	}
}

func TestSimulateErrors(t *testing.T) {
	file := configFile(t, simulatedConfig)
	two := configFile(t, ":1 {\nllm_failover https://a.example {\npool a\nkeys {\nk {env.A}\n}\n}\n}\n:2 {\nllm_failover https://b.example {\npool b\nkeys {\nk {env.B}\n}\n}\n}")
	none := configFile(t, ":1 {\nrespond hello\n}")
	bad := configFile(t, "callers: many")
	for want, args := range map[string][]string{
		"--config and --scenario are needed":            {"--config", file},
		"there is no scenario and no file \"nonsense\"": {"--config", file, "--scenario", "nonsense"},
		"cannot unmarshal":                              {"--config", file, "--scenario", bad},
		"the config has several pools; choose one":      {"--config", two, "--scenario", "slow"},
		"the config has no pool \"c\"; there is a or b": {"--config", two, "--scenario", "slow", "--pool", "c"},
		"the config has no llm_failover":                {"--config", none, "--scenario", "slow"},
		"callers: -1 is not between 1 and 100000":       {"--config", file, "--scenario", "slow", "--callers", "-1"},
		"no such file or directory":                     {"--config", "/not/there", "--scenario", "slow"},
		"/not/there/out.svg: no such file or directory": {"--config", file, "--scenario", "slow", "--callers", "1", "--plot", "/not/there/out.svg"},
	} {
		if _, err := simulated(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	if _, err := simulated(t, "--config", two, "--scenario", "slow", "--pool", "b", "--callers", "5"); err != nil {
		t.Error(err)
	}
}
