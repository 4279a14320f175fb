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
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// testHandler provisions a handler as Caddy does, with a transport and a source of chance in place of its own. What it
// took is given back at the end of the test, or by cleanup.
func testHandler(tb testing.TB, h *Handler, transport http.RoundTripper, random func() float64) (p *pool, cleanup func()) {
	tb.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	if err := h.Provision(ctx); err != nil {
		tb.Fatal(err)
	}
	for _, provider := range h.pool.Load().providers {
		provider.transport = transport
	}
	h.pool.Load().logger = zap.NewNop()
	if random != nil {
		h.pool.Load().random = random
	}
	return h.pool.Load(), func() {
		if err := h.Cleanup(); err != nil {
			tb.Error(err)
		}
		cancel()
	}
}

// testPool is testHandler where nothing is asked of any upstream and chance is always 0.
func testPool(tb testing.TB, h *Handler) *pool {
	tb.Helper()
	if h.Pool == "" {
		h.Pool = strings.NewReplacer("/", "-", " ", "-").Replace(tb.Name())
	}
	p, cleanup := testHandler(tb, h, noTransport{}, func() float64 { return 0 })
	tb.Cleanup(cleanup)
	return p
}

type noTransport struct{}

func (noTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no transport")
}

// testProvider is a provider whose keys have the secrets "secret-of-<name>".
func testProvider(name string, keys ...string) *Provider {
	p := &Provider{Name: name, BaseURL: "https://" + name + ".example"}
	for _, k := range keys {
		p.Keys = append(p.Keys, &Key{Name: k, Secret: "secret-of-" + name + "-" + k})
	}
	return p
}

// inCaddy gives a request the context that Caddy's server gives it, as far as it is used.
func inCaddy(r *http.Request) *http.Request {
	replacer := caddy.NewReplacer()
	replacer.Map(func(name string) (any, bool) {
		if field, ok := strings.CutPrefix(name, "http.request.header."); ok {
			return r.Header.Get(field), true
		}
		return nil, false
	})
	ctx := context.WithValue(r.Context(), caddy.ReplacerCtxKey, replacer)
	return r.WithContext(context.WithValue(ctx, caddyhttp.ExtraLogFieldsCtxKey, new(caddyhttp.ExtraLogFields)))
}

// key finds a credential by its name.
func (p *pool) key(name string) *credential {
	for _, c := range p.credentials {
		if c.name == name {
			return c
		}
	}
	panic("no key " + name)
}

// setDisabled does what an operator may.
func setDisabled(keys []*credential, off bool) {
	for _, c := range keys {
		if off {
			c.named.disable(time.Now())
		} else {
			c.named.enable()
		}
	}
}

// limitsOf is for tests that read requests outside of a pool.
func limitsOf(one int64) *bodyLimits {
	return &bodyLimits{one: one, all: 1 << 30, held: new(atomic.Int64), strict: true}
}

// looseLimits is limitsOf where nothing hangs on the model.
func looseLimits(one int64) *bodyLimits {
	l := limitsOf(one)
	l.strict = false
	return l
}
