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
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
	"github.com/llmfailover/caddy-llm-failover/internal/headroom"
)

// pool is a handler as provisioned: what the request path uses.
type pool struct {
	*poolFacts
	name        string
	providers   []*provider
	credentials []*credential // all keys of all providers, in the order of the config
	policy      policy
	retired     *atomic.Bool // its config is gone, though requests may still be under way
	selection   selection
	random      func() float64 // from 0 to 1
	clock       clock
	events      *emitter // nil: no config runs
	ownFields   []string // header fields of a caller's that mean something here, and never go upstream
	selective   bool     // some provider or key does not serve everything
	bodies      bodyLimits
	logger      *zap.Logger
}

// provider is a Provider as provisioned.
type provider struct {
	pool      *pool
	name      string
	hash      uint64 // of its name
	base      *url.URL
	config    *Provider
	transport http.RoundTripper
	rules     []Rule // its own, then the pool's
	vendor    string
	believed  bool // what its answers say is left of limits
	accounts  []*account
	keys      []*credential
	facts     *providerFacts
	tokens    []tokenCounters // by model, see tokenCountersOf
}

// account is who pays for some keys of a provider.
type account struct {
	name  string
	facts *accountFacts
}

// credential is a Key as provisioned.
type credential struct {
	*secret
	provider    *provider
	account     *account
	name        string
	models      []string
	weight      int
	maxInFlight int64  // 0: no limit
	hash        uint64 // of provider and name, for sticky
	facts       *keyFacts
	named       *nameFacts
	counters    *keyCounters
}

// builder makes a pool of a handler's config, and takes references to what is known of it.
type builder struct {
	handler    *Handler
	pool       *pool
	held       []factKey
	secret     func(*Key) (string, error)
	transports map[string]http.RoundTripper // by provider; nil: they are loaded
}

// build makes the pool. Also with an error, what held has must be given back.
func (b *builder) build(ctx caddy.Context) error {
	b.pool = b.newPool(ctx.Logger())
	for _, p := range b.handler.Providers {
		if err := b.addProvider(ctx, p); err != nil {
			return fmt.Errorf("provider %s: %w", p.Name, err)
		}
	}
	b.pool.ready()
	return nil
}

func (b *builder) newPool(logger *zap.Logger) *pool {
	h := b.handler
	p := &pool{name: h.Pool, policy: newPolicy(h), random: rand.Float64, clock: machineClock{}, logger: logger, events: h.events, retired: &h.retired}
	p.poolFacts = acquire[poolFacts](factKey{pool: h.Pool}, &b.held)
	p.once.Do(func() { p.poolFacts.counters = newCounters(h.Pool) })
	p.bodies = bodyLimits{one: p.policy.maxHeldBody, all: p.policy.maxHeldBodies, held: &p.heldBytes}
	if field := p.policy.deadlineField; field != "" {
		p.ownFields = append(p.ownFields, field)
	}
	p.selection.policy = selectFirst
	if h.Select != nil {
		p.selection.placeholder = h.Select.Placeholder
		if h.Select.Policy != "" {
			p.selection.policy = h.Select.Policy
		}
	}
	return p
}

// ready computes what depends on all keys.
func (p *pool) ready() {
	var total, sum float64
	for _, c := range p.credentials {
		total += float64(c.weight)
		p.selective = p.selective || len(c.provider.config.Dialects) > 0
		p.bodies.strict = p.bodies.strict || len(c.models) > 0 || len(c.provider.config.Models) > 0
	}
	p.selective = p.selective || p.bodies.strict
	p.selection.turns = make([]atomic.Uint64, len(p.credentials))
	for _, c := range p.credentials {
		p.selection.hashes = append(p.selection.hashes, c.hash)
		sum += float64(c.weight)
		p.selection.shares = append(p.selection.shares, sum/total)
	}
}

func (b *builder) addProvider(ctx caddy.Context, config *Provider) error {
	base, err := url.Parse(config.BaseURL)
	if err != nil {
		return err
	}
	p := &provider{
		pool: b.pool, name: config.Name, hash: hashOf(config.Name), base: base, config: config, vendor: config.Vendor,
		rules: slices.Concat(config.Classify, b.handler.Classify),
		facts: acquire[providerFacts](factKey{pool: b.pool.name, provider: config.Name}, &b.held),
	}
	if p.vendor == "" {
		p.vendor = vendorOf(base.Hostname())
	}
	p.facts.once.Do(func() { p.facts.tokens = newTokens(b.pool.name, p.name) })
	p.tokens = tokenCountersOf(p.facts.tokens, config.Models)
	p.believed = orValue(config.Headroom, headroom.Trusted(p.vendor))
	if p.transport = b.transports[config.Name]; p.transport == nil {
		if p.transport, err = loadTransport(ctx, config); err != nil {
			return err
		}
	}
	if a := config.Auth; a != nil && a.Field != "" {
		b.pool.ownFields = append(b.pool.ownFields, a.Field)
	}
	if config.HeaderUp != nil && b.transports == nil { // else it has been
		if err := config.HeaderUp.Provision(ctx); err != nil {
			return fmt.Errorf("header_up: %w", err)
		}
	}
	for _, k := range config.Keys {
		value, err := b.secret(k)
		if err != nil {
			return fmt.Errorf("key %s: %w", k.Name, err)
		}
		p.keys = append(p.keys, b.newCredential(p, k, newSecret(value).withSpelling()))
	}
	b.pool.providers = append(b.pool.providers, p)
	b.pool.credentials = append(b.pool.credentials, p.keys...)
	return nil
}

func (b *builder) newCredential(p *provider, k *Key, s *secret) *credential {
	id := factKey{pool: b.pool.name, provider: p.name, key: k.Name}
	c := &credential{
		secret: s, provider: p, name: k.Name, models: k.Models, weight: max(k.Weight, 1), maxInFlight: int64(k.MaxInFlight), hash: hashOf(p.name + "/" + k.Name),
		named:   acquire[nameFacts](id, &b.held),
		account: b.accountOf(p, k, s),
	}
	c.named.once.Do(func() { c.named.counters = newKeyCounters(b.pool.name, p.name, k.Name) })
	c.counters = c.named.counters
	id.secret = s.sum
	c.facts = acquire[keyFacts](id, &b.held)
	return c
}

// accountOf returns the account that a key belongs to, which siblings may share. A key that is an account of its own
// is another one with another secret.
func (b *builder) accountOf(p *provider, k *Key, s *secret) *account {
	name := cmp.Or(k.Account, p.config.Account)
	id := factKey{pool: b.pool.name, provider: p.name, account: name}
	if name == "" {
		name, id.account, id.secret = k.Name, k.Name, s.sum
	}
	for _, a := range p.accounts {
		if a.name == name {
			return a
		}
	}
	a := &account{name: name, facts: acquire[accountFacts](id, &b.held)}
	p.accounts = append(p.accounts, a)
	return a
}

// The limits of the default transport. A silent upstream is found out by the timeouts; these find a dead one.
const (
	tlsHandshakeTimeout = 10 * time.Second
	maxIdleConns        = 512
	maxHeaderBytes      = 1 << 20
	pingAfter           = 15 * time.Second // of silence on an HTTP/2 connection
	pingTimeout         = 5 * time.Second
)

// loadTransport loads the provider's transport module. It must be the http one: others want a reverse_proxy around
// them (fastcgi panics without).
func loadTransport(ctx caddy.Context, config *Provider) (http.RoundTripper, error) {
	custom := config.TransportRaw != nil
	if !custom {
		config.TransportRaw = fmt.Appendf(nil, `{"protocol":"http","keep_alive":{"max_idle_conns_per_host":%d}}`, maxIdleConns)
	}
	module, err := ctx.LoadModule(config, "TransportRaw")
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	t, ok := module.(*reverseproxy.HTTPTransport)
	if !ok {
		return nil, fmt.Errorf("transport: %T is not supported; use `transport http`", module)
	}
	t.Transport.DialContext = readToTheEnd(t.Transport.DialContext)
	if t.ProxyProtocolEnabled() {
		return nil, errors.New("transport: proxy_protocol makes no sense towards an LLM provider, and is not supported")
	}
	if t.TLS != nil && strings.Contains(t.TLS.ServerName, "{") {
		return nil, errors.New("transport: tls_server_name cannot hold a placeholder")
	}
	// Also for a transport of the config's own, where it does not say otherwise.
	if t.Transport.MaxResponseHeaderBytes == 0 {
		t.Transport.MaxResponseHeaderBytes = maxHeaderBytes
	}
	if t.Transport.TLSHandshakeTimeout == 0 {
		t.Transport.TLSHandshakeTimeout = tlsHandshakeTimeout
	}
	if t.Transport.HTTP2 == nil {
		t.Transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	}
	return t, nil
}

// closeIdle closes the connections that nobody uses.
func (p *provider) closeIdle() {
	if t, ok := p.transport.(*reverseproxy.HTTPTransport); ok {
		t.Transport.CloseIdleConnections()
	}
}

// serves reports whether the key may be used for the dialect and model; an empty model is any.
func (c *credential) serves(d dialect.Dialect, model string) bool {
	if ds := c.provider.config.Dialects; len(ds) > 0 && !slices.Contains(ds, string(d)) {
		return false
	}
	if model == "" {
		return true
	}
	if len(c.models) > 0 && !slices.ContainsFunc(c.models, func(pattern string) bool { return matches(pattern, model) }) {
		return false
	}
	ms := c.provider.config.Models
	return len(ms) == 0 || slices.ContainsFunc(ms, func(m Model) bool { return matches(m.Asked, model) })
}

// sentModel is the provider's name for a model.
func (p *provider) sentModel(asked string) string {
	if asked == "" {
		return ""
	}
	for _, m := range p.config.Models {
		if matches(m.Asked, asked) {
			if m.Sent != "" {
				return m.Sent
			}
			break
		}
	}
	return asked
}

// matches reports whether name fits a pattern in which `*` stands for any text, also none.
func matches(pattern, name string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, first)
	for ok {
		part, more, again := strings.Cut(rest, "*")
		if !again {
			return strings.HasSuffix(name, rest)
		}
		_, name, ok = strings.Cut(name, part)
		rest = more
	}
	return false
}

// target is the URL that a request with this escaped path and query goes to. A base URL with a path takes the place
// of the caller's version segment.
func (p *provider) target(escapedPath, rawQuery string) (*url.URL, error) {
	u := *p.base
	if base := strings.TrimRight(p.base.EscapedPath(), "/"); base != "" {
		escapedPath = base + withoutVersion(escapedPath)
	}
	decoded, err := url.PathUnescape(escapedPath)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawPath, u.RawQuery = decoded, escapedPath, rawQuery
	return &u, nil
}

// withoutVersion cuts a leading /v and digits (/v1, /v1beta) off a path.
func withoutVersion(p string) string {
	rooted, ok := strings.CutPrefix(p, "/")
	segment, _, _ := strings.Cut(rooted, "/")
	if ok && len(segment) >= 2 && segment[0] == 'v' && segment[1] >= '0' && segment[1] <= '9' {
		return p[1+len(segment):]
	}
	return p
}
