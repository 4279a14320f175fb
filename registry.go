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
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// pools are the handlers of the running config by pool name, and during a reload also those of the one that comes or
// goes.
var pools = poolRegistry{handlers: make(map[string][]registered)}

type poolRegistry struct {
	mu       sync.RWMutex
	handlers map[string][]registered
}

type registered struct {
	handler *Handler
	config  *prometheus.Registry // each config has one of its own, which so tells configs apart
	sum     [sha256.Size]byte    // of the handler's JSON, which holds secrets
}

// add registers h, unless its config has another pool of that name. The same directive may come twice: a site with
// two addresses is two servers.
func (r *poolRegistry) add(h *Handler, config *prometheus.Registry, text []byte) error {
	sum := sha256.Sum256(text)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.handlers[h.Pool] {
		if other.config == config && other.sum != sum {
			return fmt.Errorf("pool %s: there are two pools of that name; give one of them another with `pool <name>`", h.Pool)
		}
	}
	r.handlers[h.Pool] = append(r.handlers[h.Pool], registered{h, config, sum})
	return nil
}

// remove forgets h; others of its name stay.
func (r *poolRegistry) remove(h *Handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handlers[h.Pool] = slices.DeleteFunc(r.handlers[h.Pool], func(o registered) bool { return o.handler == h })
	if len(r.handlers[h.Pool]) == 0 {
		delete(r.handlers, h.Pool)
	}
}

// current returns the pool of that name that operators see and steer.
func (r *poolRegistry) current(name string) *pool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if all := r.handlers[name]; len(all) > 0 {
		return currentOf(all)
	}
	return nil
}

// all returns the current pool of each name.
func (r *poolRegistry) all() []*pool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	ps := make([]*pool, 0, len(r.handlers))
	for _, all := range r.handlers {
		ps = append(ps, currentOf(all))
	}
	return ps
}

// currentOf returns the newest pool whose config has started: one that is being loaded may still fail. Before any has,
// it is the newest.
func currentOf(all []registered) *pool {
	for _, o := range slices.Backward(all) {
		if o.handler.events.running() {
			return o.handler.pool.Load()
		}
	}
	return all[len(all)-1].handler.pool.Load()
}
