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
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [--address <address>] [--config <file> [--adapter <name>]] [--watch] [--json]",
		Short: "Shows the keys of a running Caddy, and what stands in their way",
		Long: `
Asks a running Caddy's admin API for its pools and prints a line for each key:
its state, why, since and until when it is set aside, how many of its calls failed,
how many are under way, and its last error. Whatever else stands in a key's way
follows on lines of its own.

The admin API is looked for at --address, else where the config of --config has
it, else at Caddy's default address.

With --watch the table is drawn anew every second, until interrupted.
With --json the API's own answer is printed.
`,
		Args: cobra.NoArgs,
		RunE: caddycmd.WrapCommandFuncForCobra(runStatus),
	}
	addressFlags(cmd)
	cmd.Flags().BoolP("watch", "w", false, "Show it anew every second")
	cmd.Flags().Bool("json", false, "Print the API's JSON")
	return cmd
}

// operateCommands are the operator's actions. Each shows the pool as it is then.
func operateCommands() []*cobra.Command {
	var cmds []*cobra.Command
	for _, c := range []struct{ action, what, short, long string }{
		{
			"reset", "<pool>[/<provider>[/<key>]]", "Forgets what was learned of a pool, a provider or a key",
			`
Forgets what was learned of a pool, of one of its providers with that one's
accounts and keys, or of one key, with its account if that is the key's alone.
They are asked again at once. A disabled key stays disabled.
`,
		},
		{
			"disable", "<pool>/<provider>/<key>", "Takes a key out",
			`
Takes a key out at once, until it is enabled or Caddy is started anew. Requests
under way are not touched.
`,
		},
		{"enable", "<pool>/<provider>/<key>", "Takes a disabled key back", "\nTakes a disabled key back, at once.\n"},
	} {
		cmd := &cobra.Command{
			Use:   c.action + " " + c.what + " [--address <address>] [--config <file> [--adapter <name>]]",
			Short: c.short,
			Long:  c.long,
			Args: func(_ *cobra.Command, args []string) error {
				if len(args) != 1 {
					return fmt.Errorf("name what to %s: %s", c.action, c.what)
				}
				return nil
			},
			RunE: caddycmd.WrapCommandFuncForCobra(func(fs caddycmd.Flags) (int, error) {
				return exitCode(operate(os.Stdout, fs, c.action))
			}),
		}
		addressFlags(cmd)
		cmds = append(cmds, cmd)
	}
	return cmds
}

// addressFlags are the flags by which Caddy's own commands find the admin API.
func addressFlags(cmd *cobra.Command) {
	cmd.Flags().String("address", "", "The address of the admin API")
	cmd.Flags().StringP("config", "c", "", "The config that says where the admin API is")
	cmd.Flags().StringP("adapter", "a", "", "The config's adapter, if it is not a Caddyfile by name")
}

func exitCode(err error) (int, error) {
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	return caddy.ExitCodeSuccess, nil
}

func runStatus(fs caddycmd.Flags) (int, error) {
	return exitCode(func() error {
		api, err := adminOf(fs)
		if err != nil {
			return err
		}
		s := statusScreen{
			w: os.Stdout, api: api, json: fs.Bool("json"), colours: wantsColours(os.Stdout),
			inPlace: fs.Bool("watch") && !fs.Bool("json") && isTerminal(os.Stdout),
		}
		// What is wrong at the beginning is most likely the address.
		if err := s.show(); err != nil || !fs.Bool("watch") {
			return err
		}
		return s.watch(time.Tick(time.Second))
	}())
}

func operate(w io.Writer, fs caddycmd.Flags, action string) error {
	api, err := adminOf(fs)
	if err != nil {
		return err
	}
	var path strings.Builder
	for name := range strings.SplitSeq(fs.Arg(0), "/") {
		path.WriteString("/" + url.PathEscape(name))
	}
	answer, err := api.ask(http.MethodPost, path.String()+"/"+action)
	if err != nil {
		return err
	}
	table, err := tableOf(answer, time.Now(), wantsColours(w))
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, table)
	return err
}

// adminClient asks a running Caddy.
type adminClient struct{ address string }

func adminOf(fs caddycmd.Flags) (adminClient, error) {
	address, err := caddycmd.DetermineAdminAPIAddress(fs.String("address"), nil, fs.String("config"), fs.String("adapter"))
	return adminClient{address}, err
}

// ask returns the answer to a request at a path below ours. The API's errors keep their own words.
func (a adminClient) ask(method, path string) ([]byte, error) {
	res, err := caddycmd.AdminAPIRequest(a.address, method, adminPath+path, nil, nil)
	if err != nil {
		text := err.Error()
		// AdminAPIRequest has read the answer's body into its error.
		if _, answer, ok := strings.Cut(text, "caddy responded with error: HTTP "); ok {
			var said struct {
				Error string `json:"error"`
			}
			status, body, _ := strings.Cut(answer, ": ")
			switch {
			case json.Unmarshal([]byte(body), &said) == nil && said.Error != "":
				return nil, errors.New(said.Error)
			case status == "404":
				return nil, fmt.Errorf("the Caddy at %s does not know llm_failover", a.address)
			}
			return nil, err
		}
		return nil, fmt.Errorf("no answer from Caddy's admin API at %s (is Caddy running? --address says where): %w", a.address, err)
	}
	defer res.Body.Close()
	return io.ReadAll(res.Body)
}

// statusScreen shows the status, once or again and again.
type statusScreen struct {
	w                      io.Writer
	api                    adminClient
	json, colours, inPlace bool
	last                   string // what was shown last
}

// show asks and prints.
func (s *statusScreen) show() error {
	answer, err := s.api.ask(http.MethodGet, "")
	if err != nil {
		return err
	}
	text := string(answer)
	if !s.json {
		if text, err = tableOf(answer, time.Now(), s.colours); err != nil {
			return err
		}
	}
	return s.print(text, "")
}

// print writes a table, and a word about it.
func (s *statusScreen) print(table, note string) error {
	text := table + note
	switch {
	case s.inPlace:
		// In one write and without an empty screen in between, so that nothing flickers.
		start := "\x1b[H"
		if s.last == "" {
			start = "\x1b[H\x1b[2J"
		}
		text = start + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
	case s.json:
		text = table
	case s.last != "":
		text = "\n" + text
	}
	s.last = cmp.Or(table, s.last)
	_, err := io.WriteString(s.w, text)
	return err
}

// watch shows the status at each tick. A Caddy that is being started anew is waited for.
func (s *statusScreen) watch(ticks <-chan time.Time) error {
	for now := range ticks {
		err := s.show()
		if err == nil {
			continue
		}
		note := now.Format(time.TimeOnly) + " " + err.Error() + "\n"
		switch {
		case s.json:
			_, err = os.Stderr.WriteString(note) // standard output is for a program
		case s.inPlace:
			err = s.print(s.last, note)
		default:
			err = s.print("", note)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// wantsColours obeys https://no-color.org.
func wantsColours(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
