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
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "llm-failover",
		Usage: "<command>",
		Short: "Commands of the llm_failover handler",
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(append(operateCommands(), classifyCommand(), simulateCommand(), statusCommand(), runCommand())...)
		},
	})
}

func classifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "classify --status <code> [--header <field: value>] [--vendor <name>] [--dialect <name>] [--model <name>] [--stream] < body",
		Short: "Says what a provider's failure means",
		Long: `
Says what llm_failover makes of an upstream's answer: its class, whom it is
about, how long the upstream asks to be left alone, the rule that spoke, and
what the gateway would do next with its default settings. The answer's body is
read from standard input.

With --transport-error no answer came: the text is the error's.

With --jsonl many recorded answers are judged, one JSON object a line with the
fields id, provider, api, status, headers, body, stream and transport_error,
and class where it is known. A table shows which classes were taken for which;
with --json each row gives one line of JSON instead.
`,
		Args: cobra.NoArgs,
		RunE: caddycmd.WrapCommandFuncForCobra(runClassify),
	}
	cmd.Flags().Int("status", 0, "The answer's HTTP status")
	cmd.Flags().StringArray("header", nil, "A header field of the answer (may be repeated)")
	cmd.Flags().String("vendor", generic, "Whose error codes to expect")
	cmd.Flags().String("dialect", string(dialect.Chat), "The API family: chat, responses, messages or gemini")
	cmd.Flags().String("model", "", "The model that was asked for")
	cmd.Flags().Bool("stream", false, "The body is an event stream")
	cmd.Flags().String("transport-error", "", "The error's text, where no answer came")
	cmd.Flags().String("jsonl", "", "A file of recorded answers, one a line")
	cmd.Flags().Bool("json", false, "Print JSON")
	return cmd
}

func runClassify(fs caddycmd.Flags) (int, error) {
	err := func() error {
		if file := fs.String("jsonl"); file != "" {
			return classifyFile(os.Stdout, file, fs.Bool("json"), time.Now())
		}
		headers, err := fs.GetStringArray("header")
		if err != nil {
			return err
		}
		row, err := recordedFrom(fs, headers, os.Stdin)
		if err != nil {
			return err
		}
		verdict := classify(row.evidence(time.Now()))
		if fs.Bool("json") {
			return json.NewEncoder(os.Stdout).Encode(row.judged(verdict))
		}
		return explain(os.Stdout, verdict)
	}()
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	return caddy.ExitCodeSuccess, nil
}

// recordedFrom reads one answer from flags and standard input.
func recordedFrom(fs caddycmd.Flags, headers []string, stdin io.Reader) (*recorded, error) {
	row := &recorded{
		Provider: fs.String("vendor"), API: fs.String("dialect"), Model: fs.String("model"), Status: fs.Int("status"),
		Stream: fs.Bool("stream"), Headers: make(map[string]string),
	}
	switch {
	case !slices.Contains(Vendors, row.Provider):
		return nil, fmt.Errorf("unknown vendor %q; it may be %s", row.Provider, strings.Join(Vendors, ", "))
	case !slices.Contains(dialect.All, dialect.Dialect(row.API)):
		return nil, fmt.Errorf("unknown dialect %q; it may be %v", row.API, dialect.All)
	case fs.String("transport-error") != "":
		row.Status, row.Body = 0, fs.String("transport-error")
		return row, nil
	case row.Status < 100 || row.Status > 599:
		return nil, fmt.Errorf("--status must be an HTTP status from 100 to 599, not %d; or use --transport-error", row.Status)
	}
	for _, line := range headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("--header %q is not a field and a value, as in 'retry-after: 2'", line)
		}
		row.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	body, err := io.ReadAll(io.LimitReader(stdin, maxEvent))
	row.Body = string(body)
	return row, err
}

// judgedRow is what is printed of a judged answer. An answer that is no failure has the class ok.
type judgedRow struct {
	ID     string `json:"id"`
	Class  string `json:"class"`
	Scope  Scope  `json:"scope"`
	WaitMS *int64 `json:"wait_ms"`
	Rule   string `json:"rule"`
}

const classOK = "ok"

func (r *recorded) judged(v Verdict) judgedRow {
	row := judgedRow{ID: r.ID, Class: classOK, Scope: ScopeNone, Rule: v.Rule}
	if v.Failed() {
		row.Class, row.Scope = string(v.Class), v.Scope
	}
	if v.Wait > 0 {
		ms := v.Wait.Milliseconds()
		row.WaitMS = &ms
	}
	return row
}

// classifyFile judges a file of recorded answers.
func classifyFile(w io.Writer, file string, asJSON bool, now time.Time) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	taken := make(confusion)
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var row recorded
		if err := json.Unmarshal(line, &row); err != nil {
			return fmt.Errorf("%s:%d: %w", file, number, err)
		}
		judged := row.judged(classify(row.evidence(now)))
		taken[[2]string{row.Class, judged.Class}]++
		if asJSON {
			if err := enc.Encode(judged); err != nil {
				return err
			}
		}
	}
	if !asJSON {
		fmt.Fprint(out, taken)
	}
	return out.Flush()
}

// confusion counts how often a class (first) was taken for another (second).
type confusion map[[2]string]int

// String draws the table, and how many were right.
func (c confusion) String() string {
	var names []string
	right, total := 0, 0
	for pair := range maps.Keys(c) {
		names = append(names, pair[0], pair[1])
		total += c[pair]
		if pair[0] == pair[1] {
			right += c[pair]
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s", "labelled \\ judged")
	for i := range names {
		fmt.Fprintf(&b, "%5d", i+1)
	}
	for i, label := range names {
		fmt.Fprintf(&b, "\n%3d %-20s", i+1, label)
		for _, judged := range names {
			if n := c[[2]string{label, judged}]; n > 0 {
				fmt.Fprintf(&b, "%5d", n)
			} else {
				b.WriteString("    ·")
			}
		}
	}
	fmt.Fprintf(&b, "\n%d of %d right\n", right, total)
	return b.String()
}

// explain prints a verdict, and what would be done next by a pool with the default settings.
func explain(w io.Writer, v Verdict) error {
	if !v.Failed() {
		_, err := fmt.Fprintln(w, "class   ok\nnext    delivered")
		return err
	}
	wait := "not said"
	if v.Wait > 0 {
		wait = v.Wait.String()
	}
	fmt.Fprintf(w, "class   %s\nscope   %s\nwait    %s\nrule    %s\nreason  %s\n", v.Class, v.Scope, wait, v.Rule, v.Reason)
	pol := newPolicy(&Handler{})
	for _, free := range []struct {
		where where
		name  string
	}{
		{0, "no other key is free"},
		{sameAccount, "a key of the same account is free"},
		{otherAccount, "a key of another account is free"},
		{otherProvider, "another provider is free"},
	} {
		act := decide(v, progress{attempts: 1, remaining: noDeadline}, options{self: true, free: free.where}, &pol, 0)
		fmt.Fprintf(w, "next    if %s: %s\n", free.name, act.describe())
	}
	return nil
}

// describe words an action.
func (a action) describe() string {
	after := ""
	if a.wait > 0 {
		after = " after " + a.wait.String()
	}
	switch a.do {
	case stay:
		return "the same key again" + after
	case move:
		return "that key" + after
	default:
		return "the failure goes to the caller"
	}
}
