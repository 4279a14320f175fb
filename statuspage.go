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
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(new(StatusPage))
	httpcaddyfile.RegisterHandlerDirective("llm_failover_status", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		s := new(StatusPage)
		return s, s.UnmarshalCaddyfile(h.Dispenser)
	})
	// Before llm_failover, which answers whatever comes to it. An order can only be given by a directive of Caddy's own.
	httpcaddyfile.RegisterDirectiveOrder("llm_failover_status", httpcaddyfile.After, "metrics")
}

// StatusPage serves one page, which shows the pools of the running config: what is set aside, since when, why and until
// when, and how much is asked. It can only be looked at, and shows what the admin API shows, so put an authentication
// handler before it.
//
// Without JavaScript the page is loaded anew every few seconds; with it, or with `?events` or
// `Accept: text/event-stream`, it is an event stream with one event a second.
type StatusPage struct {
	board *statusBoard
	ended <-chan struct{} // closed when its config is no longer the running one
}

// CaddyModule returns the Caddy module information.
func (StatusPage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.llm_failover_status",
		New: func() caddy.Module { return new(StatusPage) },
	}
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	llm_failover_status [<matcher>]
func (*StatusPage) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume directive name
	const none = "llm_failover_status: unknown word %q; it has no options, write: llm_failover_status [<matcher>]"
	if d.NextArg() {
		return d.Errf(none, d.Val())
	}
	for d.NextBlock(0) {
		return d.Errf(none, d.Val())
	}
	return nil
}

// Provision takes hold of what the status pages of the process share.
func (s *StatusPage) Provision(ctx caddy.Context) error {
	board, _, err := statusBoards.LoadOrNew(statusBoardKey, func() (caddy.Destructor, error) { return new(statusBoard), nil })
	if err != nil {
		return err
	}
	s.board, s.ended = board.(*statusBoard), ctx.Done()
	return nil
}

// Cleanup gives that back. Streams have ended by themselves with the config's context.
func (s *StatusPage) Cleanup() error {
	if s.board == nil { // Provision failed
		return nil
	}
	_, err := statusBoards.Delete(statusBoardKey)
	return err
}

// ServeHTTP serves the page or the stream of its events.
func (s *StatusPage) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		return caddyhttp.Error(http.StatusMethodNotAllowed, fmt.Errorf("method %s is not allowed here", r.Method))
	}
	h.Set("Vary", "Accept")
	if r.URL.Query().Has("events") || strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return s.watch(w, r)
	}
	page, err := s.board.look(time.Now(), 0).render("page")
	if err != nil {
		return err
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(page)))
	h.Set("Content-Security-Policy", statusPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	if r.Method == http.MethodHead {
		return nil
	}
	_, _ = w.Write(page) // fails if the caller has left
	return nil
}

const (
	maxWatchers     = 64
	statusInterval  = time.Second
	nearlyInterval  = statusInterval * 9 / 10 // tickers are not exact
	watcherPatience = 10 * time.Second        // for a watcher who does not read
)

// watch sends an event each second, until the caller leaves or the config does.
func (s *StatusPage) watch(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	if r.Method == http.MethodGet {
		if !s.board.enter() {
			h.Set("Retry-After", "10")
			return caddyhttp.Error(http.StatusServiceUnavailable, fmt.Errorf("%d watch already", maxWatchers))
		}
		defer s.board.leave()
	}
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return nil
	}
	control := http.NewResponseController(w)
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }() // the connection may serve on
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	maxAge := time.Duration(0) // who comes from an old config sees none of it again
	// While Caddy exits it waits for its requests before it ends the config.
	for !caddy.Exiting() {
		event, err := s.board.look(time.Now(), maxAge).event(r.URL.Query().Get("events") == "page")
		if err != nil {
			return err // a defect of the template; nothing is sent yet
		}
		_ = control.SetWriteDeadline(time.Now().Add(watcherPatience))
		if _, err := w.Write(event); err != nil {
			return nil
		}
		if err := control.Flush(); err != nil {
			return nil
		}
		maxAge = nearlyInterval
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return nil
		case <-s.ended:
			return nil
		}
	}
	return nil
}

// What an event shows: the admin API's views with the rates.
type (
	statusView struct {
		At    time.Time              `json:"at"`
		Pools map[string]*poolStatus `json:"pools"`
		HTML  string                 `json:"html,omitempty"` // the page's content, for the page itself

		events [2]func() ([]byte, error) // without and with HTML; each is made once, when somebody wants it
	}
	poolStatus struct {
		poolView
		Rates    *ratesView                       `json:"rates,omitempty"`
		KeyRates map[string]map[string]*ratesView `json:"key_rates"` // by provider and key
		bars     [plotBars]bar
	}
	ratesView struct {
		Attempts float64 `json:"attempts_per_second"`
		Failures float64 `json:"failures_per_second"`
	}
)

func newStatusView(now time.Time, shown map[string]*poolStatus) *statusView {
	v := &statusView{At: now, Pools: shown}
	for i := range v.events {
		v.events[i] = sync.OnceValues(func() ([]byte, error) { return v.newEvent(i == 1) })
	}
	return v
}

func (v *statusView) event(html bool) ([]byte, error) {
	if html {
		return v.events[1]()
	}
	return v.events[0]()
}

func (v *statusView) newEvent(html bool) ([]byte, error) {
	said := statusView{At: v.At.UTC(), Pools: v.Pools}
	if html {
		content, err := v.render("status")
		if err != nil {
			return nil, err
		}
		said.HTML = string(content)
	}
	data, err := json.Marshal(&said)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "retry: 1000\ndata: %s\n\n", data), nil
}

// The page. Its style and script stand in it, and the policy lets in nothing else.
var (
	//go:embed statuspage/page.html.tmpl
	statusTemplateText string
	//go:embed statuspage/page.css
	statusStyle string
	//go:embed statuspage/page.js
	statusScript string

	statusTemplate = template.Must(template.New("").Parse(statusTemplateText))
	statusPolicy   = fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		hashSource(statusStyle), hashSource(statusScript))
)

func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// render executes one of the page's templates.
func (v *statusView) render(name string) ([]byte, error) {
	var b bytes.Buffer
	if err := statusTemplate.ExecuteTemplate(&b, name, newStatusPanes(v)); err != nil {
		return nil, errors.Join(errors.New("the status page"), err)
	}
	return b.Bytes(), nil
}

// severity orders what is shown: what is dead comes first. It is also the class of its style.
type severity string

const (
	dead    severity = "dead"    // nothing but time, an operator or money helps
	resting severity = "resting" // for a short time, or in part
	off     severity = "off"     // an operator wants it so
	fine    severity = "fine"
)

var severities = []severity{dead, resting, off, fine}

func worse(a, b severity) int {
	return cmp.Compare(slices.Index(severities, a), slices.Index(severities, b))
}

// severityOf says how bad a barrier is by the colour that the status command gives it.
func severityOf(o barrier) severity {
	return map[string]severity{red: dead, yellow: resting, dim: off}[o.colour]
}

// What the template shows: text, in order.
type (
	statusPanes struct {
		At, Verdict string
		Worst       severity
		Pools       []poolPane
		Style       template.CSS
		Script      template.JS
	}
	poolPane struct {
		Name, Verdict, Rates string
		Worst                severity
		InFlight             int64
		Keys                 []keyPane
		Plot                 plotPane
	}
	keyPane struct {
		Provider, BaseURL, Name, Fingerprint, Account string
		Worst                                         severity
		Barriers                                      []barrierPane // at least one, that may say that there is none
		InFlight                                      int64
		Totals                                        totalsView
		Rates                                         *ratesView
		LastError                                     momentPane
		Headroom                                      []string
	}
	barrierPane struct {
		State, Why   string
		Since, Until momentPane
		Severity     severity
	}
	momentPane struct{ At, Relative string } // a time, or what happened then, and how long ago or ahead
	plotPane   struct {
		Attempts, Failures, Text, Top string
	}
)

func newStatusPanes(v *statusView) *statusPanes {
	s := &statusPanes{At: v.At.UTC().Format(time.DateTime), Worst: fine, Style: template.CSS(statusStyle), Script: template.JS(statusScript)} //nolint:gosec // they are files of ours
	free, all := 0, 0
	for _, name := range slices.Sorted(maps.Keys(v.Pools)) {
		p := newPoolPane(name, v.Pools[name], v.At)
		s.Pools = append(s.Pools, p)
		all += len(p.Keys)
		free += p.free()
		if worse(p.Worst, s.Worst) < 0 {
			s.Worst = p.Worst
		}
	}
	slices.SortStableFunc(s.Pools, func(a, b poolPane) int { return worse(a.Worst, b.Worst) })
	s.Verdict = freeKeys(free, all)
	if all == 0 {
		s.Verdict = "there is no pool"
	}
	return s
}

func newPoolPane(name string, p *poolStatus, now time.Time) poolPane {
	pane := poolPane{Name: name, Worst: fine, Rates: "no rates yet", Plot: newPlotPane(&p.bars, now)}
	for _, provider := range slices.Sorted(maps.Keys(p.Providers)) {
		pv := p.Providers[provider]
		for _, key := range slices.Sorted(maps.Keys(pv.Keys)) {
			k := newKeyPane(&pv, key, now)
			k.Provider, k.Rates = provider, p.KeyRates[provider][key]
			pane.Keys = append(pane.Keys, k)
			pane.InFlight += k.InFlight
			if worse(k.Worst, pane.Worst) < 0 {
				pane.Worst = k.Worst
			}
		}
	}
	slices.SortStableFunc(pane.Keys, func(a, b keyPane) int { return worse(a.Worst, b.Worst) })
	free := pane.free()
	if free == 0 {
		pane.Worst = dead // as callers see it, whatever the keys wait for
	}
	pane.Verdict = freeKeys(free, len(pane.Keys))
	if p.Rates != nil {
		pane.Rates = fmt.Sprintf("%.1f attempts and %.1f failures a second", p.Rates.Attempts, p.Rates.Failures)
	}
	return pane
}

// free counts the keys that may be asked now.
func (p *poolPane) free() (n int) {
	for _, k := range p.Keys {
		if k.Barriers[0].Severity == fine {
			n++
		}
	}
	return n
}

func freeKeys(free, all int) string {
	switch {
	case free == 0:
		return "no key free"
	case free == all:
		return "all keys free"
	}
	return fmt.Sprintf("%d of %d keys free", free, all)
}

func newKeyPane(p *providerView, name string, now time.Time) keyPane {
	k := p.Keys[name]
	pane := keyPane{
		BaseURL: p.BaseURL, Name: name, Fingerprint: k.Fingerprint, Account: k.Account, Worst: fine,
		InFlight: k.InFlight, Totals: k.Totals, LastError: momentPane{At: "–"},
	}
	if k.LastError != nil {
		pane.LastError.At, pane.LastError.Relative, _ = strings.Cut(k.LastError.describe(now), ", ")
	}
	for _, o := range barriersOf(p, name, &k) {
		b := barrierPane{State: o.state, Why: o.reason, Until: momentPane{At: o.untilWord}, Severity: cmp.Or(severityOf(o), fine)}
		if o.untilWord == "" && !o.until.IsZero() {
			b.Until = momentPane{clockTime(o.until, now), "in " + seconds(o.until.Sub(now))}
		}
		if bench := o.bench; bench != nil {
			if bench.Hint != "" {
				b.Why += " (hint " + bench.Hint + ")"
			}
			if bench.Strikes > 1 {
				b.Why += fmt.Sprintf(", %d times", bench.Strikes)
			}
		}
		if !o.since.IsZero() {
			b.Since = momentPane{clockTime(o.since, now), seconds(now.Sub(o.since)) + " ago"}
		}
		pane.Barriers = append(pane.Barriers, b)
		if worse(b.Severity, pane.Worst) < 0 {
			pane.Worst = b.Severity
		}
	}
	for _, limit := range slices.Sorted(maps.Keys(k.Headroom)) {
		room := k.Headroom[limit]
		text := fmt.Sprintf("%s %d", limit, room.Remaining)
		if room.Limit != nil {
			text += fmt.Sprintf(" of %d", *room.Limit)
		}
		if room.Reset != nil {
			text += ", anew in " + seconds(room.Reset.Sub(now))
		}
		pane.Headroom = append(pane.Headroom, text)
	}
	return pane
}

// clockTime is a time of day in UTC, with the date where it is another day's.
func clockTime(t, now time.Time) string {
	layout := time.TimeOnly
	if t.UTC().YearDay() != now.UTC().YearDay() {
		layout = time.DateTime
	}
	return t.UTC().Format(layout)
}

// The plot's size, in its own units.
const (
	plotWidth  = 600
	plotHeight = 60
)

// newPlotPane draws a bar for each five seconds of the last five minutes: the attempts, and the failures before them.
func newPlotPane(bars *[plotBars]bar, now time.Time) plotPane {
	var attempts, failures strings.Builder
	newest, top := slotOf(now), 1.0
	for i := range bars {
		if r := bars[i].rates(); r != nil && bars[i].slot > newest-plotBars {
			top = max(top, r.Attempts, r.Failures)
		}
	}
	for i := range bars {
		b := &bars[i]
		r := b.rates()
		if r == nil || b.slot <= newest-plotBars {
			continue
		}
		const step = plotWidth / plotBars
		x := plotWidth - step*(newest-b.slot+1)
		for _, one := range []struct {
			path *strings.Builder
			rate float64
		}{{&attempts, r.Attempts}, {&failures, r.Failures}} {
			if one.rate > 0 {
				fmt.Fprintf(one.path, "M%d %dv-%.1fh%dV%dz", x, plotHeight, one.rate/top*plotHeight, step-1, plotHeight)
			}
		}
	}
	return plotPane{
		Attempts: attempts.String(), Failures: failures.String(), Top: fmt.Sprintf("%.3g/s", top),
		Text: fmt.Sprintf("Attempts and failures a second in the last five minutes, as far as somebody looked; the top is %.3g a second", top),
	}
}

// Interface guards
var (
	_ caddy.Module                = (*StatusPage)(nil)
	_ caddy.Provisioner           = (*StatusPage)(nil)
	_ caddy.CleanerUpper          = (*StatusPage)(nil)
	_ caddyhttp.MiddlewareHandler = (*StatusPage)(nil)
	_ caddyfile.Unmarshaler       = (*StatusPage)(nil)
)
