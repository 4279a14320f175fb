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
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/llmfailover/caddy-llm-failover/internal/storm"
)

func simulateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate --config <file> --scenario <name|file> | --fixture backoff",
		Short: "Shows what becomes of an outage under a config's policy",
		Long: `
Runs an outage in virtual time: the callers of a scenario, each with the
retries of its SDK, ask the pool of a config, whose providers fail as the
scenario says. Nothing is asked of any real upstream, and no secret is needed.
A table shows how many calls that makes, how many requests are served, and
how soon all is well again; for comparison, too, what the same callers make of
it without a gateway.

Built-in scenarios: ` + strings.Join(storm.Names(), ", ") + `.
A file holds one in YAML or JSON; docs/storms.md says what may be in it.

With --fixture backoff the three schedules of retries of a textbook's storm are
worked out instead.

The same seed gives the same figures.
`,
		Args: cobra.NoArgs,
		RunE: caddycmd.WrapCommandFuncForCobra(runSimulate),
	}
	cmd.Flags().StringP("config", "c", "", "The config")
	cmd.Flags().StringP("adapter", "a", "", "The config's adapter, if it is not a Caddyfile by name")
	cmd.Flags().String("pool", "", "The pool, where the config has several")
	cmd.Flags().String("scenario", "", "The scenario: a built-in one's name, or a file")
	cmd.Flags().Int("callers", 0, "How many callers, in place of the scenario's number")
	cmd.Flags().Uint("seed", 1, "What chance begins with")
	cmd.Flags().String("fixture", "", "A storm of the textbook's: backoff")
	cmd.Flags().String("plot", "", "Write an image of the calls over time to this SVG file")
	cmd.Flags().Bool("json", false, "Print JSON")
	return cmd
}

func runSimulate(fs caddycmd.Flags) (int, error) {
	if err := simulateTo(os.Stdout, fs); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	return caddy.ExitCodeSuccess, nil
}

func simulateTo(w io.Writer, fs caddycmd.Flags) error {
	if name := fs.String("fixture"); name != "" {
		return fixtureTo(w, name, fs)
	}
	if fs.String("config") == "" || fs.String("scenario") == "" {
		return fmt.Errorf("--config and --scenario are needed, or --fixture backoff; built-in scenarios are %s", strings.Join(storm.Names(), ", "))
	}
	config, _, _, err := caddycmd.LoadConfig(fs.String("config"), fs.String("adapter"))
	if err != nil {
		return err
	}
	handler, err := handlerIn(config, fs.String("pool"))
	if err != nil {
		return err
	}
	scenario, err := scenarioNamed(fs.String("scenario"), fs.Int("callers"))
	if err != nil {
		return err
	}
	seed, err := fs.GetUint("seed")
	if err != nil {
		return err
	}
	var runs []*storm.Run
	for _, kind := range []struct {
		name   string
		direct bool
	}{{"callers alone", true}, {"through the gateway", false}} {
		run, err := simulateStorm(handler, scenario, uint64(seed), kind.name, kind.direct)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	if err := plotTo(fs.String("plot"), scenario.Name+": "+scenario.Description, scenario, runs); err != nil {
		return err
	}
	if fs.Bool("json") {
		return storm.WriteJSON(w, scenario, uint64(seed), runs)
	}
	return storm.WriteTable(w, scenario, runs)
}

func fixtureTo(w io.Writer, name string, fs caddycmd.Flags) error {
	if name != "backoff" {
		return fmt.Errorf("unknown fixture %q; there is backoff", name)
	}
	scenario, runs := storm.Backoff.Runs()
	if err := plotTo(fs.String("plot"), "what backoff and jitter are worth", scenario, runs); err != nil {
		return err
	}
	if fs.Bool("json") {
		return storm.Backoff.WriteJSON(w)
	}
	return storm.Backoff.WriteTable(w)
}

func plotTo(file, title string, scenario *storm.Scenario, runs []*storm.Run) error {
	if file == "" {
		return nil
	}
	var image bytes.Buffer
	if err := storm.Plot(&image, title, scenario, runs); err != nil {
		return err
	}
	return os.WriteFile(file, image.Bytes(), 0o644) //nolint:gosec // it is there to be looked at
}

// scenarioNamed returns a built-in scenario or that of a file, with another number of callers if that is not 0.
func scenarioNamed(name string, callers int) (*storm.Scenario, error) {
	scenario := storm.BuiltIn(name)
	if scenario == nil {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("there is no scenario and no file %q; built-in scenarios are %s", name, strings.Join(storm.Names(), ", "))
		}
		defer f.Close()
		if scenario, err = storm.Parse(f); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if callers == 0 {
		return scenario, nil
	}
	return scenario, scenario.SetCallers(callers)
}

// handlerIn finds the pool of that name in a config, or the only one.
func handlerIn(config []byte, pool string) (json.RawMessage, error) {
	var whole any
	if err := json.Unmarshal(config, &whole); err != nil {
		return nil, err
	}
	found := make(map[string]map[string]any)
	var look func(any)
	look = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if v["handler"] == "llm_failover" {
				name, _ := v["pool"].(string)
				if name == "" {
					name = defaultName
				}
				found[name] = v
				return
			}
			for _, inside := range v {
				look(inside)
			}
		case []any:
			for _, inside := range v {
				look(inside)
			}
		}
	}
	look(whole)
	names := slices.Sorted(maps.Keys(found))
	switch {
	case len(names) == 0:
		return nil, errors.New("the config has no llm_failover")
	case pool == "" && len(names) > 1:
		return nil, fmt.Errorf("the config has several pools; choose one with --pool: %s", listWords(names))
	case pool == "":
		pool = names[0]
	case found[pool] == nil:
		return nil, fmt.Errorf("the config has no pool %q; there is %s", pool, listWords(names))
	}
	handler := found[pool]
	delete(handler, "handler")
	return json.Marshal(handler)
}
