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
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"
)

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
	aside, all := 0, 0
	for _, pool := range slices.Sorted(maps.Keys(shown.Pools)) {
		for _, k := range keysByNeed(shown.Pools[pool]) {
			all++
			if k.barriers[0].colour != green {
				aside++
			}
			for i, o := range k.barriers {
				line := []string{"", "", "", o.state, cmp.Or(o.reason, "-"), cmp.Or(o.sinceWhen(now), "-"), cmp.Or(o.untilWhen(now), "-")}
				if i == 0 {
					line[0], line[1], line[2] = pool, k.provider, k.name
					line = append(line, fmt.Sprintf("%d of %d", k.Totals.Failures, k.Totals.Attempts), fmt.Sprint(k.InFlight), k.LastError.describe(now))
				}
				lines = append(lines, statusLine{line, o.colour})
			}
		}
	}
	return fmt.Sprintf("%d of %d keys set aside\n", aside, all) + drawTable(lines, colours), nil
}

// statusKey is a key with what stands in its way.
type statusKey struct {
	keyView
	provider, name string
	barriers       []barrier
}

// keysByNeed lists a pool's keys as the status page does: those that somebody should look at come first.
func keysByNeed(p poolView) (keys []statusKey) {
	for _, provider := range slices.Sorted(maps.Keys(p.Providers)) {
		v := p.Providers[provider]
		for _, name := range slices.Sorted(maps.Keys(v.Keys)) {
			k := v.Keys[name]
			keys = append(keys, statusKey{k, provider, name, barriersOf(&v, name, &k)})
		}
	}
	slices.SortStableFunc(keys, func(a, b statusKey) int { return worse(a.worst(), b.worst()) })
	return keys
}

func (k *statusKey) worst() severity {
	worst := fine
	for _, o := range k.barriers {
		if s := cmp.Or(severityOf(o), fine); worse(s, worst) < 0 {
			worst = s
		}
	}
	return worst
}

func drawTable(lines []statusLine, colours bool) string {
	widths := make([]int, len(statusHead))
	for _, l := range lines {
		for i, cell := range l.cells {
			cell = withoutControls(cell) // what answers need not be a Caddy
			l.cells[i] = cell
			widths[i] = max(widths[i], widthOf(cell))
		}
	}
	var b strings.Builder
	for n, l := range lines {
		for i, cell := range l.cells {
			space := strings.Repeat(" ", widths[i]-widthOf(cell)+2)
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

// colourCodes take no place on a terminal.
var colourCodes = regexp.MustCompile(`\x1b\[\d+m`)

// widthOf is how many columns of a terminal a text takes: East Asian characters two each, marks on others none.
func widthOf(text string) (columns int) {
	for _, r := range colourCodes.ReplaceAllString(text, "") {
		kind := width.LookupRune(r).Kind()
		switch {
		case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
			columns += 2
		case unicode.IsPrint(r) && !unicode.IsMark(r):
			columns++
		}
	}
	return columns
}

// rowsOf is how many rows a line takes in a terminal, where a long one is wrapped.
func rowsOf(line string, columns int) int { return max(1, (widthOf(line)+columns-1)/columns) }

// fit cuts a table to a terminal, and says how many of its lines are missing.
func fit(table string, columns, rows int) string {
	lines := slices.Collect(strings.Lines(table))
	for i, line := range lines {
		rows -= rowsOf(line, columns)
		if rows < 0 || rows == 0 && i < len(lines)-1 {
			return strings.Join(lines[:i], "") + fmt.Sprintf("… %d more lines\n", len(lines)-i)
		}
	}
	return table
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

// ends is when a barrier does; zero: with an event.
func (o barrier) ends() time.Time {
	if o.untilWord != "" {
		return time.Time{}
	}
	return o.until
}

// barriersOf lists what stands in the way of a key, or says that nothing does. The first is what it waits for: an
// operator, else what lasts longest. What ends with an event counts as short, as in refusals.
func barriersOf(p *providerView, name string, k *keyView) []barrier {
	var all []barrier
	add := func(state, colour string, b *benchView) {
		all = append(all, barrierOf(state, colour, b))
	}
	onProbation := func(state, colour string, b *benchView) {
		add(state, colour, b)
		all[len(all)-1].untilWord = nextRequest
	}
	account := "account"
	if k.Account != name {
		account += " " + k.Account
	}
	paying := p.Accounts[k.Account]

	if p.Halt != nil && !p.haltIsAnAccounts() {
		add("provider halted", red, p.Halt)
	}
	if paying.Halt != nil {
		add(account+" halted", red, paying.Halt)
	}
	if p.Unproven != nil {
		onProbation("provider halted", yellow, p.Unproven)
	}
	if paying.Unproven != nil {
		onProbation(account+" halted", yellow, paying.Unproven)
	}
	switch {
	case k.Rejected != nil && k.Rejected.Remaining > 0:
		add("rejected", red, k.Rejected)
	case k.Rejected != nil: // it is due for its re-check
		onProbation("rejected", red, k.Rejected)
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
	slices.SortStableFunc(all, func(a, b barrier) int { return b.ends().Compare(a.ends()) })
	if k.Status == "disabled" {
		all = slices.Insert(all, 0, barrier{state: "disabled", colour: dim, reason: "by an operator", since: orZero(k.DisabledSince), untilWord: "it is enabled"})
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
	clean := []rune(strings.Trim(fmt.Sprintf("%q", word), `"`))
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
