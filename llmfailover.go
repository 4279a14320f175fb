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

// Package llmfailover is a Caddy HTTP handler that keeps LLM clients answered while LLM providers fail.
//
// It stands between clients and providers and owns the retries: it reads why an upstream call failed, asks again
// only where another try can cure it, and remembers what it learned about each key, account and provider.
package llmfailover

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler forwards requests to LLM providers and fails over between their keys.
//
// One handler is one pool: its providers, their keys, and the policy by which they are used. What it learns is kept
// by pool, provider, key name and secret, and survives config reloads.
//
// Placeholders it sets, for handlers and logs that run after it:
//
// Placeholder | Description
// ------------|------------
// `{http.llm_failover.pool}` | The pool's name
// `{http.llm_failover.provider}` | The provider asked last
// `{http.llm_failover.key}` | The name of the key asked last
// `{http.llm_failover.attempts}` | How many upstream calls were made
// `{http.llm_failover.class}` | The class of the last failure; empty if there was none
// `{http.llm_failover.model}` | The model the caller asked for
type Handler struct {
	// The name of the pool. No two pools of one config may share a name. Default: `default`.
	Pool string `json:"pool,omitempty"`

	// The providers, in the order in which they are preferred.
	Providers []*Provider `json:"providers,omitempty"`

	// Which key is asked first. Default: the first free one, in the order of the config.
	Select *Select `json:"select,omitempty"`

	// Rules of your own that say what a failure means; they come before the built-in ones.
	Classify []Rule `json:"classify,omitempty"`

	// What is tried again, when, and how often.
	Retry *Retry `json:"retry,omitempty"`

	// When a key with repeated upstream faults is set aside.
	Circuit *Circuit `json:"circuit,omitempty"`

	// How long accounts, providers and models are set aside.
	Halt *Halt `json:"halt,omitempty"`

	// How long an upstream may be silent.
	Timeouts *Timeouts `json:"timeouts,omitempty"`

	// How streams are delivered.
	Stream *Stream `json:"stream,omitempty"`

	// What one request, and all of the pool's at once, may take.
	Limits *Limits `json:"limits,omitempty"`

	pool   atomic.Pointer[pool]
	events *emitter // nil: no config runs

	retired atomic.Bool // the config is gone, though requests may still be under way

	mu   sync.Mutex // of held, and of the ending: a followed secret may change meanwhile
	held []factKey  // references to facts that this instance took
}

// Provider is one upstream base URL with its keys.
type Provider struct {
	// The provider's name, as shown to operators and callers. Default: `default`, for a lone provider.
	Name string `json:"name,omitempty"`

	// Where it answers: scheme, host and an optional path, without query. A path takes the place of the version
	// segment (`/v1`, `/v1beta` …) of the caller's path; without one the caller's path goes through as it is.
	BaseURL string `json:"base_url,omitempty"`

	// The credentials, in the order in which they are preferred.
	Keys []*Key `json:"keys,omitempty"`

	// The account that keys without one of their own belong to. Keys of one account share limits and bills.
	// Default: each key is an account of its own, named like the key.
	Account string `json:"account,omitempty"`

	// Where the credential goes. Default: where the dialect of the request's path wants it.
	Auth *Auth `json:"auth,omitempty"`

	// The models it serves, under the names that callers ask for. Default: any, sent as asked.
	Models []Model `json:"models,omitempty"`

	// The API families it serves: `chat`, `responses`, `messages`, `gemini`. Default: all.
	Dialects []string `json:"dialects,omitempty"`

	// Whose error codes to expect; see [Vendors]. Default: known from the base URL's host, else `generic`.
	Vendor string `json:"vendor,omitempty"`

	// Rules of your own that say what this provider's failures mean; they come before the pool's and the built-in ones.
	Classify []Rule `json:"classify,omitempty"`

	// Whether a key is passed by, as long as another is free, when an answer has said that nothing is left of one of
	// its limits, until that limit's reset. Default: true, but for vendors whose figures are known to be wrong.
	Headroom *bool `json:"headroom,omitempty"`

	// Changes to the request's header fields. The credential is set after them.
	HeaderUp *headers.HeaderOps `json:"header_up,omitempty"`

	// How it is reached: the `http` transport of `reverse_proxy`, the only one supported. Default: `http` with a TLS handshake limit of 10s,
	// a dial limit of 3s, 512 idle connections, and HTTP/2 pings.
	TransportRaw json.RawMessage `json:"transport,omitempty" caddy:"namespace=http.reverse_proxy.transport inline_key=protocol"`
}

// Key is one credential.
type Key struct {
	// The key's name, as shown to operators and callers.
	Name string `json:"name,omitempty"`

	// The credential. Placeholders ({env.X}, {file./path}) are resolved when the config is loaded;
	// the stored config keeps them. It is shown nowhere.
	Secret string `json:"secret,omitempty"`

	// The account that pays for it. Default: the provider's account, else an account of its own.
	Account string `json:"account,omitempty"`

	// The models it may be used for, as callers name them; `*` stands for any text. Default: all.
	Models []string `json:"models,omitempty"`

	// Its share of the traffic with `weighted_random`. Default: 1.
	Weight int `json:"weight,omitempty"`

	// How many calls it may have under way at once; beyond them it is passed over. Default: no limit.
	MaxInFlight int `json:"max_in_flight,omitempty"`
}

// Auth says where a credential goes.
type Auth struct {
	// `bearer` (Authorization: Bearer …), `x-api-key`, `x-goog-api-key`, `api-key`, or `header`.
	Scheme string `json:"scheme,omitempty"`

	// With `header`: the field's name.
	Field string `json:"field,omitempty"`

	// With `header`: the field's value, in which `{key}` stands for the credential.
	Value string `json:"value,omitempty"`
}

// Model is one model that a provider serves.
type Model struct {
	// The name callers ask for; `*` stands for any text.
	Asked string `json:"asked,omitempty"`

	// The name to send. Default: as asked.
	Sent string `json:"sent,omitempty"`
}

// Select says which of the free keys is asked first; on failover the others follow in their order.
type Select struct {
	// `first`, `round_robin`, `random`, `weighted_random`, `least_in_flight` or `sticky`. Default: `first`.
	Policy string `json:"policy,omitempty"`

	// With `sticky`: what identifies a caller, a placeholder such as `{http.request.header.X-Session}`.
	Placeholder string `json:"placeholder,omitempty"`
}

// Retry says what is tried again, when, and how often.
type Retry struct {
	// The classes of failure that may be tried again, with the classes that inherit from them. `bad_request` is
	// never tried again, even if listed. Default: all of the nine but `bad_request` and `unknown`.
	On []Class `json:"on,omitempty"`

	// The waits before the same key is asked again; -1 alone: none. Default: 1s, 2s, 4s.
	SameKey []caddy.Duration `json:"same_key,omitempty"`

	// The exact classes for which the same key is asked again after `same_key`. Default: `rate_limit`, `model_unavailable`.
	SameKeyOn []Class `json:"same_key_on,omitempty"`

	// The wait before the first charged switch to another key; it doubles with each. Default: 500ms.
	Backoff caddy.Duration `json:"backoff,omitempty"`

	// The longest backoff, before jitter. Default: 8s.
	BackoffCap caddy.Duration `json:"backoff_cap,omitempty"`

	// How much chance may add to a wait, in percent of it. Default: 25.
	Jitter *float64 `json:"jitter,omitempty"`

	// How many charged switches and revisits one request may make. Default: min(3, keys − 1), at least 1.
	MaxRetries *int `json:"max_retries,omitempty"`

	// The longest wait inside a request. Default: 5s. With a queue, limited keys may be waited for as long as its wait.
	MaxWait caddy.Duration `json:"max_wait,omitempty"`

	// No attempt starts later than this after the request's arrival. Default: 60s.
	Window caddy.Duration `json:"window,omitempty"`

	// An attempt starts only if it has at least this long until the deadline. Default: 1s.
	MinAttempt caddy.Duration `json:"min_attempt,omitempty"`

	// How much of a provider's traffic may be repeats: same-key waits, and charged switches and revisits at the same
	// provider. Without any left a request moves on to another provider, or fails with what it has.
	Budget *Budget `json:"budget,omitempty"`
}

// Budget is a bucket of retries that successes and time refill. It holds what five seconds add.
type Budget struct {
	// How many retries a hundred successes are worth. Default: 20.
	Percent float64 `json:"percent,omitempty"`

	// How many retries a second adds. Default: 10.
	PerSecond float64 `json:"per_second,omitempty"`
}

// Circuit says when a key with repeated upstream faults is set aside.
type Circuit struct {
	// How many faults in a row open the circuit. Default: 3.
	Threshold int `json:"threshold,omitempty"`

	// How long it stays open. Default: 30s.
	Cooldown caddy.Duration `json:"cooldown,omitempty"`

	// The exact classes that count as faults. Default: `rate_limit`, `server_error`, `timeout`, `provider_unavailable`.
	On []Class `json:"on,omitempty"`

	// What follows the cooldown: `probe` lets one request through, and all others once it succeeded; `reset` lets
	// everybody through and counts from zero. Default: `probe`.
	HalfOpen string `json:"half_open,omitempty"`

	// How long the share of a recovered key, account or provider takes to grow to full, from a tenth on: the other
	// requests pass it by as long as another key is free for them. Default: none, its share is full at once.
	Ramp caddy.Duration `json:"ramp,omitempty"`
}

// Halt says how long accounts, providers, keys and models are set aside.
type Halt struct {
	// The first halt of an account without money or a provider that cannot be reached; it doubles with each
	// further failure. Default: 60s.
	Base caddy.Duration `json:"base,omitempty"`

	// The longest such halt. Default: 5m.
	Max caddy.Duration `json:"max,omitempty"`

	// How long a provider rests when all its keys are limited and none said for how long. Default: 30s.
	RateLimit caddy.Duration `json:"rate_limit,omitempty"`

	// How long an overloaded provider rests the first time, if it does not say; it doubles. Default: 5s.
	Overload caddy.Duration `json:"overload,omitempty"`

	// The longest such rest. Default: 60s.
	OverloadCap caddy.Duration `json:"overload_cap,omitempty"`

	// How long a model that a key may not use is not asked of it again. Default: 60s.
	Model caddy.Duration `json:"model,omitempty"`

	// How often a rejected key is tried once more. Default: 10m.
	Recheck caddy.Duration `json:"recheck,omitempty"`

	// The longest rest that an upstream's own hint may cause. Default: 1h.
	MaxCooldown caddy.Duration `json:"max_cooldown,omitempty"`
}

// Timeouts says how long an upstream may be silent.
type Timeouts struct {
	// From the start of an attempt to the answer's headers. Default: 30s where a stream or a WebSocket
	// is asked for, else 10m.
	Headers caddy.Duration `json:"headers,omitempty"`

	// From the start of an attempt to a stream's first content; comments, pings and empty deltas do not count. Default: 2m.
	FirstToken caddy.Duration `json:"first_token,omitempty"`

	// Between any two bytes of an answer, from its headers on. A WebSocket may be silent for as long as it likes.
	// Default: 60s.
	Idle caddy.Duration `json:"idle,omitempty"`

	// Between any two events with content of a stream, after the first. Default: none, since a model that thinks may
	// send nothing but pings for long.
	IdleContent caddy.Duration `json:"idle_content,omitempty"`

	// The whole request up to the first content that goes to the caller, all attempts together. Default: none.
	Deadline caddy.Duration `json:"deadline,omitempty"`

	// A header field in which callers say how long they wait, in seconds (`30`, `2.5`) or as a duration (`1500ms`).
	// Like what the official SDKs say of themselves it takes the deadline's place where it is shorter. The field does
	// not go upstream. Default: none.
	DeadlineHeader string `json:"deadline_header,omitempty"`
}

// Stream says how streams are delivered.
type Stream struct {
	// Where a stream has no content yet after this long, the caller gets its headers and then a comment each such
	// interval, while failover goes on behind. A failure is then told by an error event, no longer by a status.
	// Default: off.
	Keepalive caddy.Duration `json:"keepalive,omitempty"`
}

// Limits says what one request, and all of the pool's at once, may take.
type Limits struct {
	// The largest request body, in bytes, that is held so that it can be sent again; a larger one passes through,
	// once. Default: 32 MiB.
	Body int64 `json:"body,omitempty"`

	// How much of request bodies, in bytes, the pool holds at once; beyond it requests are refused. Default: 256 MiB.
	Held int64 `json:"held,omitempty"`

	// How many requests the pool serves at once. Default: no limit.
	MaxInFlight int `json:"max_in_flight,omitempty"`

	// How many more may wait for their turn, first come, first served. Default: none.
	Queue int `json:"queue,omitempty"`

	// How long one may wait for its turn, or for a key where all merely cool. Required with `queue`.
	QueueWait caddy.Duration `json:"queue_wait,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.llm_failover",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision resolves the secrets, loads the transports and takes hold of what is already known of the keys. It asks
// nothing of any upstream.
func (h *Handler) Provision(ctx caddy.Context) error {
	if h.Pool == "" {
		h.Pool = defaultName
	}
	if len(h.Providers) == 1 && h.Providers[0] != nil && h.Providers[0].Name == "" {
		h.Providers[0].Name = defaultName
	}
	if err := h.validate(); err != nil {
		return err
	}
	text, err := json.Marshal(h) // before the transports are loaded, which takes them out of the config
	if err != nil {
		return err
	}
	if h.events, err = newEmitter(ctx, h.started); err != nil {
		return err
	}
	b := &builder{handler: h, secret: resolve}
	err = b.build(ctx)
	h.pool.Store(b.pool)
	h.held = b.held
	if err != nil {
		return fmt.Errorf("pool %s: %w", h.Pool, err)
	}
	for _, hint := range h.hints(b.pool) {
		b.pool.logger.Warn("this setting has no effect", zap.String("pool", h.Pool), zap.String("hint", hint))
	}
	if err := registerMetrics(ctx.GetMetricsRegistry()); err != nil {
		return err
	}
	if err := pools.add(h, ctx.GetMetricsRegistry(), text); err != nil {
		return err
	}
	h.followSecrets(ctx)
	return nil
}

// started lets in those who wait for a limit that this config has raised.
func (h *Handler) started() {
	p := h.pool.Load()
	p.gate.change(p.policy.gate)
}

// Cleanup gives back what this instance took, also after a Provision that failed halfway. Requests still under way
// keep what they use.
func (h *Handler) Cleanup() error {
	pools.remove(h)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retired.Store(true)
	err := giveBack(h.held)
	h.held = nil
	return err
}

// ServeHTTP answers from a provider, or says honestly why it cannot.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if r.Method == http.MethodOptions { // CORS is another handler's
		return next.ServeHTTP(w, r)
	}
	return h.pool.Load().serve(w, r)
}

// Interface guards
var (
	_ caddy.Module                = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
