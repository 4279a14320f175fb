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
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddyserver/caddy/v2"
)

// followInterval is how often the files that hold secrets are looked at. They are small, and few.
const followInterval = time.Second

// followSecrets looks at secrets in files, until the config is gone. When one has new content a pool with it takes the
// old one's place: what is known of the key starts clean, and requests under way go on with the old one.
func (h *Handler) followSecrets(ctx caddy.Context) {
	inFiles := false
	for _, p := range h.Providers {
		for _, k := range p.Keys {
			inFiles = inFiles || inFile(k)
		}
	}
	if !inFiles {
		return
	}
	f := follower{handler: h, unusable: make(map[*Key]bool)}
	go func() {
		ticker := time.NewTicker(followInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				f.reread(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
}

// follower looks at a handler's files.
type follower struct {
	handler  *Handler
	unusable map[*Key]bool // as was said in the log
}

// reread looks for new content once. What cannot be read, or used, leaves the secret as it was: a file may be gone for
// a moment while it is replaced.
func (f *follower) reread(ctx caddy.Context) {
	h := f.handler
	old := h.pool.Load()
	secrets := make(map[*Key]string)
	transports := make(map[string]http.RoundTripper)
	changed := false
	for i, p := range h.Providers {
		transports[p.Name] = old.providers[i].transport
		for n, k := range p.Keys {
			c := old.providers[i].keys[n]
			secrets[k] = c.secret.value
			if !inFile(k) {
				continue
			}
			fields := []zap.Field{zap.String("pool", old.name), zap.String("provider", p.Name), zap.String("key", k.Name)}
			value, err := resolve(k)
			switch {
			case err != nil && !f.unusable[k]:
				old.logger.Warn("a key's new secret cannot be used, the old one stays", append(fields, zap.Error(err))...)
			case err == nil && value != c.secret.value:
				secrets[k], changed = value, true
				old.logger.Info("a key has a new secret", fields...)
			case err == nil && f.unusable[k]:
				old.logger.Info("a key's secret is what it was", fields...)
			}
			f.unusable[k] = err != nil
		}
	}
	if !changed {
		return
	}
	b := &builder{handler: h, transports: transports, secret: func(k *Key) (string, error) { return secrets[k], nil }}
	err := b.build(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil || h.retired.Load() {
		_ = giveBack(b.held) // what was just taken is there
		return
	}
	h.pool.Store(b.pool)
	given := h.held
	h.held = b.held
	_ = giveBack(given)
}
