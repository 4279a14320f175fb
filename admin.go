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
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
)

func init() {
	caddy.RegisterModule(adminAPI{})
}

// adminAPI is what operators see and steer. It has no state: it reads the pools that run when it is asked.
type adminAPI struct{}

// Provision has the admin endpoint's own metrics tell of the pools.
func (adminAPI) Provision(ctx caddy.Context) error { return registerMetrics(ctx.GetMetricsRegistry()) }

// CaddyModule returns the Caddy module information.
func (adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.llm_failover",
		New: func() caddy.Module { return new(adminAPI) },
	}
}

const adminPath = "/llm_failover"

// Routes implements caddy.AdminRouter.
func (a adminAPI) Routes() []caddy.AdminRoute {
	handler := caddy.AdminHandlerFunc(a.handle)
	return []caddy.AdminRoute{{Pattern: adminPath, Handler: handler}, {Pattern: adminPath + "/", Handler: handler}}
}

// handle answers GET /llm_failover[/<pool>] and POST /llm_failover/<pool>[/<provider>[/<key>]]/<action>.
func (adminAPI) handle(w http.ResponseWriter, r *http.Request) error {
	var names []string
	for part := range strings.SplitSeq(strings.TrimPrefix(r.URL.EscapedPath(), adminPath), "/") {
		name, err := url.PathUnescape(part)
		if err != nil {
			return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
		}
		if name != "" {
			names = append(names, name)
		}
	}
	if len(names) < 2 {
		return adminShow(w, r, names)
	}
	return adminAct(w, r, names[:len(names)-1], names[len(names)-1])
}

func adminShow(w http.ResponseWriter, r *http.Request, names []string) error {
	if r.Method != http.MethodGet {
		return wrongMethod(r, http.MethodGet)
	}
	shown := pools.all()
	if len(names) == 1 {
		p := pools.current(names[0])
		if p == nil {
			return notFound("pool", names[0])
		}
		shown = []*pool{p}
	}
	return writeViews(w, shown...)
}

func writeViews(w http.ResponseWriter, shown ...*pool) error {
	now := time.Now()
	views := make(map[string]poolView, len(shown))
	for _, p := range shown {
		views[p.name] = p.view(now)
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]any{"pools": views})
}

// adminAct does what an operator asks of a pool, a provider or a key, and shows the pool as it is then.
func adminAct(w http.ResponseWriter, r *http.Request, names []string, action string) error {
	act, known := map[string]func([]*provider, []*credential, bool){
		"reset":   resetAll,
		"disable": func(_ []*provider, keys []*credential, _ bool) { keys[0].named.disable(time.Now()) },
		"enable":  func(_ []*provider, keys []*credential, _ bool) { keys[0].named.enable() },
	}[action]
	if !known || action != "reset" && len(names) != 3 || len(names) > 3 {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf(
			"unknown action %q: use <pool>[/<provider>[/<key>]]/reset, <pool>/<provider>/<key>/disable or …/enable", action)}
	}
	if r.Method != http.MethodPost {
		return wrongMethod(r, http.MethodPost)
	}
	p := pools.current(names[0])
	if p == nil {
		return notFound("pool", names[0])
	}
	providers, keys := p.providers, p.credentials
	if len(names) > 1 {
		i := slices.IndexFunc(providers, func(pr *provider) bool { return pr.name == names[1] })
		if i < 0 {
			return notFound("provider", names[1])
		}
		providers, keys = providers[i:i+1], providers[i].keys
	}
	if len(names) > 2 {
		i := slices.IndexFunc(keys, func(c *credential) bool { return c.name == names[2] })
		if i < 0 {
			return notFound("key", names[2])
		}
		keys = keys[i : i+1]
	}
	act(providers, keys, len(names) == 3)
	return writeViews(w, p)
}

// resetAll forgets what was learned. The account of a single key is forgotten with it only if it is that key's alone.
func resetAll(providers []*provider, keys []*credential, oneKey bool) {
	for _, c := range keys {
		c.facts.forget()
		if !oneKey || !slices.ContainsFunc(c.provider.keys, func(o *credential) bool { return o != c && o.account == c.account }) {
			c.account.facts.forget()
		}
	}
	if oneKey {
		return
	}
	for _, p := range providers {
		p.facts.forget()
	}
}

func wrongMethod(r *http.Request, want string) error {
	return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: fmt.Errorf("method %s is not allowed here; use %s", r.Method, want)}
}

func notFound(what, name string) error {
	return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("there is no %s named %q", what, name)}
}

// What the admin API shows. A field without content is absent.
type (
	poolView struct {
		Providers map[string]providerView `json:"providers"`
	}
	providerView struct {
		BaseURL  string                 `json:"base_url"`
		Status   string                 `json:"status"`
		Halt     *benchView             `json:"halt,omitempty"`
		Unproven *benchView             `json:"unproven,omitempty"` // its halt is over, but one request at a time probes it until a success
		Accounts map[string]accountView `json:"accounts,omitempty"`
		Keys     map[string]keyView     `json:"keys"`
	}
	accountView struct {
		Halt     *benchView `json:"halt,omitempty"`
		Unproven *benchView `json:"unproven,omitempty"`
		Cooldown *benchView `json:"cooldown,omitempty"`
	}
	keyView struct {
		Fingerprint   string                  `json:"fingerprint"`
		Account       string                  `json:"account"`
		Status        string                  `json:"status"`
		Circuit       circuitView             `json:"circuit"`
		Cooldown      *benchView              `json:"cooldown,omitempty"`
		Rejected      *benchView              `json:"rejected,omitempty"`
		DisabledSince *time.Time              `json:"disabled_since,omitempty"`
		Models        map[string]benchView    `json:"models,omitempty"`
		Headroom      map[string]headroomView `json:"headroom,omitempty"`
		InFlight      int64                   `json:"in_flight"`
		LastError     *errorView              `json:"last_error,omitempty"`
		Totals        totalsView              `json:"totals"`
	}
	benchView struct {
		Reason    Class     `json:"reason"`
		Since     time.Time `json:"since"`
		Until     time.Time `json:"until"`
		Remaining int64     `json:"remaining_ms"`
		Strikes   int       `json:"strikes,omitempty"`
		Hint      string    `json:"hint,omitempty"` // how the upstream said until when
	}
	circuitView struct {
		State    string     `json:"state"`
		Failures int        `json:"failures"`
		Reason   Class      `json:"reason,omitempty"`
		Since    *time.Time `json:"since,omitempty"`
		Until    *time.Time `json:"until,omitempty"`
	}
	errorView struct {
		Class  Class     `json:"class"`
		Status int       `json:"status,omitempty"`
		At     time.Time `json:"at"`
	}
	totalsView struct {
		Attempts uint64 `json:"attempts"`
		Failures uint64 `json:"failures"`
	}
)

// view returns what is shown of a bench that still lasts, else nil.
func (b *bench) view(now time.Time) *benchView {
	if !b.active(now) {
		return nil
	}
	return b.show(now)
}

// show returns what is shown of a bench, also of one that waits for its probe.
func (b *bench) show(now time.Time) *benchView {
	return &benchView{b.reason, b.since.UTC(), b.until.UTC(), max(0, b.until.Sub(now).Milliseconds()), b.strikes, b.hint}
}

func (p *pool) view(now time.Time) poolView {
	v := poolView{Providers: make(map[string]providerView, len(p.providers))}
	for _, pr := range p.providers {
		v.Providers[pr.name] = pr.view(now)
	}
	return v
}

func (p *provider) view(now time.Time) providerView {
	b := p.facts.look()
	v := providerView{
		BaseURL: p.base.Redacted(), Status: "available", Halt: b.view(now),
		Accounts: make(map[string]accountView), Keys: make(map[string]keyView, len(p.keys)),
	}
	if b.ending(now) {
		v.Unproven = b.show(now)
	}
	var soonest *benchView
	allHalted := true
	for _, a := range p.accounts {
		b := a.facts.look()
		shown := b.view(now)
		switch {
		case b.ending(now):
			v.Accounts[a.name] = accountView{Unproven: b.show(now)}
			allHalted = false
			continue
		case shown == nil:
			allHalted = false
			continue
		case b.strikes == 0:
			v.Accounts[a.name] = accountView{Cooldown: shown}
			allHalted = false
			continue
		}
		v.Accounts[a.name] = accountView{Halt: shown}
		if soonest == nil || shown.Until.Before(soonest.Until) {
			soonest = shown
		}
	}
	if v.Halt == nil && allHalted {
		v.Halt = soonest
	}
	if v.Halt != nil {
		v.Status = "halted"
	}
	for _, c := range p.keys {
		v.Keys[c.name] = c.view(now)
	}
	return v
}

func (c *credential) view(now time.Time) keyView {
	k := c.facts
	v := keyView{
		Fingerprint: c.secret.String(), Account: c.account.name, Status: "available",
		Headroom: k.headroom.view(now), InFlight: k.inFlight.Load(), Totals: totalsView{k.attempts.Load(), k.failures.Load()},
	}
	paying := c.account.facts.look()
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.provider.pool.policy.lapses {
		k.circuit.lapse(now, nextSequence)
	}
	v.Circuit = circuitView{State: k.circuit.state(now), Failures: k.circuit.failures}
	if since, until := k.circuit.since.UTC(), k.circuit.until.UTC(); v.Circuit.State != circuitClosed {
		v.Circuit.Reason, v.Circuit.Since, v.Circuit.Until = k.circuit.reason, &since, &until
	}
	v.Cooldown = k.cooldown.view(now)
	for model, b := range k.models {
		if shown := b.view(now); shown != nil {
			if v.Models == nil {
				v.Models = make(map[string]benchView)
			}
			v.Models[model] = *shown
		}
	}
	if e := k.lastError; e.class != "" {
		v.LastError = &errorView{e.class, e.status, e.at.UTC()}
	}
	switch since := c.named.since.Load(); {
	case since != 0:
		at := time.Unix(0, since).UTC()
		v.Status, v.DisabledSince = "disabled", &at
	case k.rejected.reason != "":
		v.Status, v.Rejected = "rejected", k.rejected.show(now)
	case v.Circuit.State != circuitClosed:
		v.Status = v.Circuit.State
	case v.Cooldown != nil || paying.active(now) && paying.strikes == 0:
		v.Status = "cooling"
	}
	return v
}

// Interface guards
var (
	_ caddy.Module      = adminAPI{}
	_ caddy.Provisioner = adminAPI{}
	_ caddy.AdminRouter = adminAPI{}
)
