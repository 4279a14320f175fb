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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [--address <address>] [--config <file> [--adapter <name>]] [--watch] [--json]",
		Short: "Shows the keys of a running Caddy, and what stands in their way",
		Long: `
Asks a running Caddy's admin API for its pools and prints a line for each key,
in each pool those first that are set aside: its state, why, since and until when,
how many of its calls failed, how many are under way, and its last error. Whatever
else stands in a key's way follows on lines of its own.

The admin API is looked for at --address, else where the config of --config has
it, else at Caddy's default address.

With --watch the table is drawn anew every second, until interrupted, and says of
when it is. On a terminal it is cut to the screen.
With --json the API's own answer is printed.
`,
		Args: noArguments("it shows all pools"),
		RunE: caddycmd.WrapCommandFuncForCobra(runStatus),
	}
	addressFlags(cmd)
	cmd.Flags().BoolP("watch", "w", false, "Show it anew every second")
	cmd.Flags().Bool("json", false, "Print the API's JSON")
	return cmd
}

// operatorAction is one of the operator's actions.
type operatorAction struct {
	action string
	what   string // it is done to
	least  int    // names in what
	short  string
	long   string
}

var operatorActions = []operatorAction{
	{
		"reset", "<pool>[/<provider>[/<key>]]", 1, "Forgets what was learned of a pool, a provider or a key",
		`
Forgets what was learned of a pool, of one of its providers with that one's
accounts and keys, or of one key, with its account if that is the key's alone.
They are asked again at once. A disabled key stays disabled.
`,
	},
	{
		"disable", "<pool>/<provider>/<key>", 3, "Takes a key out",
		`
Takes a key out at once, until it is enabled or Caddy is started anew. Requests
under way are not touched.
`,
	},
	{"enable", "<pool>/<provider>/<key>", 3, "Takes a disabled key back", "\nTakes a disabled key back, at once.\n"},
}

// operateCommands are the operator's actions. Each shows the pool as it is then.
func operateCommands() []*cobra.Command {
	var cmds []*cobra.Command
	for _, o := range operatorActions {
		cmd := &cobra.Command{
			Use:   o.action + " " + o.what + " [--address <address>] [--config <file> [--adapter <name>]]",
			Short: o.short,
			Long:  o.long,
			Args: func(_ *cobra.Command, args []string) error {
				_, err := o.path(args)
				return err
			},
			RunE: caddycmd.WrapCommandFuncForCobra(func(fs caddycmd.Flags) (int, error) {
				return exitCode(o.run(os.Stdout, fs))
			}),
		}
		addressFlags(cmd)
		cmds = append(cmds, cmd)
	}
	return cmds
}

// path is where the API takes the action. The API, and servers in general, leave out parts of a path that are empty or
// dots: what was meant for a key would be done to all of its provider.
func (o operatorAction) path(args []string) (string, error) {
	var names []string
	if len(args) == 1 {
		names = strings.Split(args[0], "/")
	}
	noName := func(name string) bool { return name == "" || name == "." || name == ".." }
	if len(names) < o.least || len(names) > 3 || slices.ContainsFunc(names, noName) {
		return "", fmt.Errorf("name what to %s: %s, with no part left empty", o.action, o.what)
	}
	path := ""
	for _, name := range names {
		path += "/" + url.PathEscape(name)
	}
	return path + "/" + o.action, nil
}

// adminOff is what turns the admin API off: in Caddy's environment variable it is taken for an address.
const adminOff = "off"

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
		watch := fs.Bool("watch")
		s := statusScreen{w: os.Stdout, api: api, json: fs.Bool("json"), colours: wantsColours(os.Stdout), dated: watch}
		if watch && !s.json && isTerminal(os.Stdout) {
			s.size = func() (int, int, error) { return term.GetSize(int(os.Stdout.Fd())) }
		}
		// What is wrong at the beginning is most likely the address.
		if err := s.show(); err != nil || !watch {
			return err
		}
		return s.watch(time.Tick(time.Second))
	}())
}

func (o operatorAction) run(w io.Writer, fs caddycmd.Flags) error {
	path, err := o.path(fs.Args())
	if err != nil {
		return err
	}
	api, err := adminOf(fs)
	if err != nil {
		return err
	}
	answer, err := api.ask(http.MethodPost, path)
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

// adminOf finds the admin API as Caddy's own commands do, but for a config that has none: they would ask whatever
// Caddy is at the default address.
func adminOf(fs caddycmd.Flags) (*adminClient, error) {
	var config struct {
		Admin struct {
			Disabled bool   `json:"disabled"`
			Listen   string `json:"listen"`
		} `json:"admin"`
	}
	address, file := fs.String("address"), fs.String("config")
	if address == "" && file != "" {
		text, _, _, err := caddycmd.LoadConfig(file, fs.String("adapter"))
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &config); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if config.Admin.Disabled {
			return nil, fmt.Errorf("%s has admin off: a Caddy with this config cannot be asked; --address says where another one can", file)
		}
	}
	return newAdminClient(cmp.Or(address, config.Admin.Listen, caddy.DefaultAdminListen))
}

// adminClient asks a running Caddy, as caddycmd.AdminAPIRequest does, but with one connection for all of a command, and
// with limits: what listens there need not be a Caddy.
type adminClient struct {
	address string
	origin  string
	http    *http.Client
}

const (
	adminPatience = 5 * time.Second
	adminAnswer   = 64 << 20 // bytes at most
)

func newAdminClient(given string) (*adminClient, error) {
	address := given
	if scheme, rest, ok := strings.Cut(given, "://"); ok {
		if !strings.EqualFold(scheme, "http") {
			return nil, fmt.Errorf("invalid admin address %s: the admin API speaks plain HTTP; write a host and a port, such as localhost:2019", given)
		}
		address, _, _ = strings.Cut(rest, "/")
	}
	if address == adminOff { // by --address, or by the environment variable CADDY_ADMIN
		return nil, errors.New("the address of the admin API is off; --address says where one is, as in --address localhost:2019")
	}
	parsed, err := caddy.ParseNetworkAddress(address)
	if err != nil {
		return nil, fmt.Errorf("invalid admin address %s: %w", given, err)
	}
	a := &adminClient{address: address}
	switch {
	case parsed.IsUnixNetwork():
		parsed.Host, _, _ = strings.Cut(parsed.Host, "|") // the socket's permissions
	case !parsed.IsFdNetwork() && (parsed.StartPort == 0 || parsed.PortRangeSize() > 1):
		return nil, fmt.Errorf("invalid admin address %s: it needs one port, as in localhost:2019", given)
	case !parsed.IsFdNetwork():
		a.origin = "http://" + parsed.JoinHostPort(0)
	}
	a.http = &http.Client{
		Timeout:       adminPatience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, parsed.Network, parsed.JoinHostPort(0))
		}},
	}
	return a, nil
}

// ask returns the answer to a request at a path below ours. The API's errors keep their own words.
func (a *adminClient) ask(method, path string) ([]byte, error) {
	// Caddy takes this host at a socket, where there is none; and wants no Origin then.
	req, err := http.NewRequest(method, cmp.Or(a.origin, "http://127.0.0.1")+adminPath+path, nil)
	if err != nil {
		return nil, err
	}
	if a.origin != "" {
		req.Header.Set("Origin", a.origin)
	}
	res, err := a.http.Do(req)
	if err != nil {
		return nil, a.unanswered(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, adminAnswer+1))
	if err != nil {
		return nil, a.unanswered(err)
	}
	var said struct {
		Error string                     `json:"error"`
		Pools map[string]json.RawMessage `json:"pools"`
	}
	if len(answer) > adminAnswer {
		return nil, fmt.Errorf("the answer from %s is larger than %d bytes", a.address, adminAnswer)
	}
	bad := json.Unmarshal(answer, &said)
	switch {
	case res.StatusCode == http.StatusOK && bad == nil && said.Pools != nil:
		return answer, nil
	case res.StatusCode >= 400 && bad == nil && said.Error != "":
		return nil, errors.New(withoutControls(said.Error))
	case res.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("no llm_failover at %s: this is no admin API of Caddy, or that of a Caddy without llm_failover; --address says where it is", a.address)
	}
	return nil, fmt.Errorf("what answers at %s (HTTP %d) is no admin API of Caddy; --address says where it is", a.address, res.StatusCode)
}

func (a *adminClient) unanswered(err error) error {
	if told, ok := errors.AsType[*url.Error](err); ok {
		err = told.Err // the rest of it is the address once more
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		err = fmt.Errorf("it was silent for %v", a.http.Timeout)
	}
	return fmt.Errorf("no answer from Caddy's admin API at %s (is Caddy running? --address says where): %w", a.address, err)
}

// withoutControls keeps what a stranger says from steering the terminal.
func withoutControls(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// statusScreen shows the status, once or again and again.
type statusScreen struct {
	w             io.Writer
	api           *adminClient
	json, colours bool
	dated         bool                                // it says of when it is
	size          func() (columns, rows int, _ error) // of the terminal that is drawn on in place; nil: lines follow each other
	last          string                              // what was shown last
}

// show asks and prints.
func (s *statusScreen) show() error {
	answer, err := s.api.ask(http.MethodGet, "")
	if err != nil {
		return err
	}
	text, now := string(answer), time.Now()
	if !s.json {
		if text, err = tableOf(answer, now, s.colours); err != nil {
			return err
		}
		if s.dated {
			text = now.Format(time.TimeOnly) + "  " + text
		}
	}
	return s.print(text, "")
}

// print writes a table, and a word about it.
func (s *statusScreen) print(table, note string) error {
	text := table + note
	switch {
	case s.size != nil:
		if columns, rows, err := s.size(); err == nil && columns > 0 && rows > 0 {
			rows-- // that of the cursor
			if note != "" {
				rows -= rowsOf(note, columns)
			}
			text = fit(table, columns, rows) + note
		}
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
	for range ticks {
		err := s.show()
		if err == nil {
			continue
		}
		note := time.Now().Format(time.TimeOnly) + "  " + err.Error() + "\n"
		switch {
		case s.json:
			_, err = os.Stderr.WriteString(note) // standard output is for a program
		case s.size != nil:
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
	return ok && term.IsTerminal(int(f.Fd()))
}

// wantsColours obeys https://no-color.org.
func wantsColours(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
