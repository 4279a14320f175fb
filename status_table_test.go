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
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
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
		{
			"halts that are over but not proven to be",
			providerView{Unproven: b(ProviderUnavailable, 0), Accounts: map[string]accountView{"k": {Unproven: b(BillingError, 0)}}}, keyView{Status: "available"},
			[]string{"provider halted|provider_unavailable|02:59:00|the next request", "account halted|billing_error|02:59:00|the next request"},
		},
		{
			"an account that would steer the terminal", providerView{Accounts: map[string]accountView{"a\x1b[2J\nb": {Halt: b(BillingError, time.Minute)}}},
			keyView{Status: "available", Account: "a\x1b[2J\nb"}, []string{"account a [2J b halted|billing_error|02:59:00|03:01:00 (1m)"},
		},
		{
			"a model of another alphabet", providerView{}, keyView{Status: "available", Models: map[string]benchView{"модель": *b(ModelUnavailable, time.Minute)}},
			[]string{"available|-|-|-", "model модель benched|model_unavailable|02:59:00|03:01:00 (1m)"},
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
		{"a disabled key", providerView{}, keyView{Status: "disabled", DisabledSince: &earlier}, []string{"disabled|by an operator|02:59:00|it is enabled"}},
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
