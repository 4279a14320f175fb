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
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

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

// SGR codes.
const (
	plain  = ""
	dim    = "2"
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

var statusHead = []string{"POOL", "PROVIDER", "KEY", "STATE", "REASON", "SINCE", "UNTIL", "FAILURES", "IN FLIGHT", "LAST ERROR"}

const stateColumn = 3

// statusLine is one line of the table; the colour is the state's.
type statusLine struct {
	cells  []string
	colour string
}

// tableOf draws the answer of the admin API.
func tableOf(answer []byte, now time.Time, colours bool) (string, error) {
	var shown struct {
		Pools map[string]poolView `json:"pools"`
	}
	if err := json.Unmarshal(answer, &shown); err != nil {
		return "", fmt.Errorf("the admin API's answer cannot be read: %w", err)
	}
	if len(shown.Pools) == 0 {
		return "", errors.New("the Caddy that answers has no llm_failover pool")
	}
	lines := []statusLine{{statusHead, bold}}
	for _, pool := range slices.Sorted(maps.Keys(shown.Pools)) {
		providers := shown.Pools[pool].Providers
		for _, provider := range slices.Sorted(maps.Keys(providers)) {
			p := providers[provider]
			for _, name := range slices.Sorted(maps.Keys(p.Keys)) {
				k := p.Keys[name]
				for i, o := range barriersOf(&p, name, &k) {
					line := []string{"", "", "", o.state, cmp.Or(o.reason, "-"), cmp.Or(o.sinceWhen(now), "-"), cmp.Or(o.untilWhen(now), "-")}
					if i == 0 {
						line[0], line[1], line[2] = pool, provider, name
						line = append(line, fmt.Sprintf("%d of %d", k.Totals.Failures, k.Totals.Attempts), fmt.Sprint(k.InFlight), k.LastError.describe(now))
					}
					lines = append(lines, statusLine{line, o.colour})
				}
			}
		}
	}
	return drawTable(lines, colours), nil
}

func drawTable(lines []statusLine, colours bool) string {
	widths := make([]int, len(statusHead))
	for _, l := range lines {
		for i, cell := range l.cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, l := range lines {
		for i, cell := range l.cells {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
			if i == len(l.cells)-1 {
				space = ""
			}
			if colours && l.colour != plain && (i == stateColumn || n == 0) {
				cell = "\x1b[" + l.colour + "m" + cell + "\x1b[0m"
			}
			b.WriteString(cell + space)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// barrier is what stands in a key's way. An untilWord takes the place of a time.
type barrier struct {
	state, reason, colour string
	since, until          time.Time
	left                  time.Duration // 0: by this computer's clock
	untilWord             string
	bench                 *benchView // what it is; nil: no bench
}

// barrierOf words a bench.
func barrierOf(state, colour string, b *benchView) barrier {
	return barrier{state: state, colour: colour, reason: string(b.Reason), since: b.Since, until: b.Until, left: time.Duration(b.Remaining) * time.Millisecond, bench: b}
}

const nextRequest = "the next request"

// barriersOf lists what stands in the way of a key, what lasts or matters most first; or says that nothing does.
func barriersOf(p *providerView, name string, k *keyView) []barrier {
	var all []barrier
	add := func(state, colour string, b *benchView) {
		all = append(all, barrierOf(state, colour, b))
	}
	account := "account"
	if k.Account != name {
		account += " " + k.Account
	}
	paying := p.Accounts[k.Account]

	if k.Status == "disabled" {
		all = append(all, barrier{state: "disabled", colour: dim, reason: "by an operator", untilWord: "it is enabled"})
	}
	if p.Halt != nil && !p.haltIsAnAccounts() {
		add("provider halted", red, p.Halt)
	}
	if paying.Halt != nil {
		add(account+" halted", red, paying.Halt)
	}
	if k.Rejected != nil {
		o := barrierOf("rejected", red, k.Rejected)
		if k.Rejected.Remaining == 0 { // it is due for its re-check
			o.untilWord = nextRequest
		}
		all = append(all, o)
	}
	if c := &k.Circuit; c.Since != nil && c.Until != nil {
		o := barrier{state: c.State, colour: red, reason: string(c.Reason), since: *c.Since, until: *c.Until}
		if o.state != circuitOpen {
			o.colour, o.untilWord = yellow, nextRequest
		}
		all = append(all, o)
	}
	if k.Cooldown != nil {
		add("cooling", yellow, k.Cooldown)
	}
	if paying.Cooldown != nil {
		add(account+" cooling", yellow, paying.Cooldown)
	}
	if len(all) == 0 {
		all = append(all, barrier{state: cmp.Or(k.Status, "available"), colour: green})
	}
	return append(all, benchedModels(k.Models)...)
}

// benchedModels shows few models one by one, and how many more there are.
func benchedModels(models map[string]benchView) (shown []barrier) {
	const most = 3
	for i, model := range slices.Sorted(maps.Keys(models)) {
		if i == most && len(models) > most+1 {
			return append(shown, barrier{state: fmt.Sprintf("%d more models benched", len(models)-most), colour: yellow})
		}
		b := models[model]
		shown = append(shown, barrierOf("model "+printable(model)+" benched", yellow, &b))
	}
	return shown
}

// printable keeps a caller's word for a model from steering the terminal.
func printable(word string) string {
	const most = 40
	clean := []rune(strings.Trim(fmt.Sprintf("%+q", word), `"`))
	if len(clean) > most {
		return string(clean[:most-1]) + "…"
	}
	return string(clean)
}

// haltIsAnAccounts reports whether the provider counts as halted only because all its accounts are.
func (p *providerView) haltIsAnAccounts() bool {
	for _, a := range p.Accounts {
		if a.Halt != nil && a.Halt.Since.Equal(p.Halt.Since) && a.Halt.Until.Equal(p.Halt.Until) && a.Halt.Reason == p.Halt.Reason {
			return true
		}
	}
	return false
}

// sinceWhen is when it began.
func (o barrier) sinceWhen(now time.Time) string {
	switch {
	case o.since.IsZero():
		return ""
	case now.Sub(o.since) >= 24*time.Hour:
		return o.since.Local().Format(time.DateTime)
	}
	return o.since.Local().Format(time.TimeOnly)
}

// untilWhen is when it ends, with the time that is left.
func (o barrier) untilWhen(now time.Time) string {
	if o.untilWord != "" || o.until.IsZero() {
		return o.untilWord
	}
	left := cmp.Or(o.left, o.until.Sub(now))
	layout := time.TimeOnly
	if left >= 24*time.Hour {
		layout = time.DateTime
	}
	return fmt.Sprintf("%s (%s)", o.until.Local().Format(layout), seconds(left))
}

// describe words a key's last error.
func (e *errorView) describe(now time.Time) string {
	if e == nil {
		return "-"
	}
	status := ""
	if e.Status != 0 {
		status = fmt.Sprintf(" %d", e.Status)
	}
	return fmt.Sprintf("%s%s, %s ago", e.Class, status, seconds(now.Sub(e.At)))
}

// seconds is a duration in whole seconds, or minutes above an hour.
func seconds(d time.Duration) string {
	unit := time.Second
	if d >= time.Hour {
		unit = time.Minute
	}
	text := max(0, d.Round(unit)).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
