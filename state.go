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
	"encoding/hex"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddyserver/caddy/v2"
)

// sequence is the process's one order of events. Each change of state takes a new number, each attempt notes the
// number at its start; an attempt with a lower number than a change began before it and proves nothing about it.
// (Times would do the same only with a clock that never repeats.)
var sequence atomic.Uint64

func nextSequence() uint64 { return sequence.Add(1) }

// facts is what is known of providers, accounts and keys. It outlives config reloads: each handler takes references
// in Provision and gives exactly those back in Cleanup. Thresholds stay with the config.
var facts = caddy.NewUsagePool()

// factKey names one entry of facts; empty fields tell a provider's from an account's from a key's.
type factKey struct {
	pool, provider, account, key, secret string
}

// fingerprint tells secrets apart without telling them.
func fingerprint(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// poolFacts is what a pool's requests share.
type poolFacts struct {
	gate      gate
	heldBytes atomic.Int64 // bytes of requests that are held, also by those who wait
	seen      seenKeys

	once     sync.Once
	counters *counters
}

// Destruct implements caddy.Destructor.
func (*poolFacts) Destruct() error { return nil }

// haltFacts is what is known of a provider or an account: whether it is halted.
type haltFacts struct {
	troubled  atomic.Bool  // set while there is a bench; the success path looks no further without it
	recovered atomic.Int64 // when a success last ended a halt, in Unix nanoseconds; 0: never
	mu        sync.Mutex
	bench     bench
}

// Destruct implements caddy.Destructor. Requests of an old config may still use the value, so it stays as it is.
func (*haltFacts) Destruct() error { return nil }

// update runs f under the lock.
func (h *haltFacts) update(f func(*bench)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.bench)
	h.troubled.Store(h.bench.reason != "")
}

// look returns the bench as it is.
func (h *haltFacts) look() bench {
	if !h.troubled.Load() {
		return bench{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bench
}

// providerFacts is what is known of a provider.
type providerFacts struct {
	haltFacts
	budget budget

	once   sync.Once
	tokens *prometheus.CounterVec
}

// forget clears what was learned, for an operator's reset.
func (p *providerFacts) forget() {
	p.haltFacts.forget()
	p.budget.reset()
}

// nameFacts is what belongs to a key's name, whatever its secret: what an operator said of it, and what was told of it.
type nameFacts struct {
	since    atomic.Int64 // when it was disabled, in Unix nanoseconds; 0: it is not
	repeated repeats      // in the log

	once     sync.Once
	counters *keyCounters
}

func (n *nameFacts) disabled() bool { return n.since.Load() != 0 }

// disable notes since when; who does it again changes nothing.
func (n *nameFacts) disable(now time.Time) { n.since.CompareAndSwap(0, now.UnixNano()) }

func (n *nameFacts) enable() { n.since.Store(0) }

// Destruct implements caddy.Destructor.
func (*nameFacts) Destruct() error { return nil }

// maxModels bounds how many models are remembered of one key.
const maxModels = 256

// maxModelName is the longest name of a model that is remembered, in bytes: callers choose it.
const maxModelName = 256

// keyFacts is what is known of a key.
type keyFacts struct {
	inFlight atomic.Int64
	attempts atomic.Uint64
	failures atomic.Uint64

	recovered atomic.Int64 // when a success last closed the circuit or proved the credential, in Unix nanoseconds; 0: never
	troubled  atomic.Bool  // set while anything below but lastError is known
	mu        sync.Mutex
	circuit   circuit
	cooldown  bench            // until when the upstream asked to be left alone
	rejected  bench            // its until is the next re-check; strikes is 1, so that one request does it
	limited   bench            // no obstacle: until when it counts as limited though the upstream gave no hint
	models    map[string]bench // by the name sent upstream
	lastError lastError

	headroom headroomFacts
}

type lastError struct {
	class  Class
	status int
	at     time.Time
}

// Destruct implements caddy.Destructor.
func (*keyFacts) Destruct() error { return nil }

// update runs f under the lock.
func (k *keyFacts) update(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	k.troubled.Store(!k.circuit.idle() || k.cooldown.reason != "" || k.rejected.reason != "" || k.limited.reason != "" || len(k.models) > 0)
}

// benchModel sets one model of the key aside. With too many of them known, one that is over or else the one that ends
// first gives way.
func (k *keyFacts) benchModel(model string, now time.Time, f func(*bench)) {
	if len(model) > maxModelName {
		return
	}
	maps.DeleteFunc(k.models, func(_ string, b bench) bool { return !b.active(now) })
	if k.models == nil {
		k.models = make(map[string]bench)
	}
	b, known := k.models[model]
	if !known && len(k.models) >= maxModels {
		var soonest string
		for m, other := range k.models {
			if soonest == "" || other.until.Before(k.models[soonest].until) {
				soonest = m
			}
		}
		delete(k.models, soonest)
	}
	f(&b)
	k.models[model] = b
}

// forget clears what was learned, for an operator's reset. The change makes evidence from before it stale.
func (k *keyFacts) forget() {
	k.recovered.Store(0)
	k.headroom.forget()
	k.update(func() {
		k.circuit = circuit{changed: nextSequence()}
		k.cooldown = bench{changed: nextSequence()}
		k.rejected = bench{changed: nextSequence()}
		k.limited, k.models, k.lastError = bench{}, nil, lastError{}
	})
}

func (h *haltFacts) forget() {
	h.recovered.Store(0)
	h.update(func(b *bench) { *b = bench{changed: nextSequence()} })
}

// giveBack gives references back.
func giveBack(held []factKey) error {
	var errs []error
	for _, key := range held {
		_, err := facts.Delete(key)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// acquire takes a reference to one entry of facts and notes it in held, so that exactly it is given back.
func acquire[T any, P destructor[T]](key factKey, held *[]factKey) P {
	value, _, _ := facts.LoadOrNew(key, func() (caddy.Destructor, error) { return P(new(T)), nil })
	*held = append(*held, key)
	return value.(P)
}

// destructor is a pointer that facts can hold.
type destructor[T any] interface {
	*T
	caddy.Destructor
}
