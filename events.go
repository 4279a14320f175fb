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
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
)

// The events that are emitted through Caddy's events app, once for each change.
const (
	eventPrefix        = "llm_failover_"
	eventCircuitOpened = eventPrefix + "circuit_opened"
	eventCircuitClosed = eventPrefix + "circuit_closed"
	eventHalted        = eventPrefix + "halted"
	eventRecovered     = eventPrefix + "recovered"
	eventKeyRejected   = eventPrefix + "key_rejected"
	eventStreamFailed  = eventPrefix + "stream_failed"
)

// The things that may be set aside.
const (
	targetProvider = "provider"
	targetAccount  = "account"
	targetKey      = "key"
	targetModel    = "model"
	targetCircuit  = "circuit"
)

// change is one of what is known that operators are told of. It is noted under a lock and told after it.
type change struct {
	event  string // empty: it is counted only
	target string
	begins bool // something is set aside
	reason Class
	until  time.Time
}

// maxEarly is how many events are kept until a config has started.
const maxEarly = 64

// emitter sends events to those whom its handler's config subscribes. The events app takes the subscriptions when it
// starts, and apps start in any order (https://github.com/caddyserver/caddy/blob/v2.11.9/caddy.go#L446), so that what
// happens before all have started is told then.
type emitter struct {
	ctx     caddy.Context
	app     *caddyevents.App
	onStart func()
	started atomic.Bool
	mu      sync.Mutex
	early   []earlyEvent
}

type earlyEvent struct {
	name string
	data map[string]any
}

// newEmitter returns nil where no events app is: no config runs then, but a test or a simulation. When the config has
// started onStart is called.
func newEmitter(ctx caddy.Context, onStart func()) (*emitter, error) {
	app, err := ctx.AppIfConfigured("events")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return nil, nil //nolint:nilnil // a nil emitter is silent
	}
	if err != nil {
		return nil, err
	}
	events, ok := app.(*caddyevents.App)
	if !ok {
		return nil, fmt.Errorf("the events app is a %T", app)
	}
	e := &emitter{ctx: ctx, app: events, onStart: onStart}
	return e, events.On("started", startHandler{e})
}

// startHandler hears that all apps of a config have started.
type startHandler struct{ *emitter }

// Handle implements caddyevents.Handler. The load of the config waits for it, and so for the event handlers that hear of
// what has been kept.
func (h startHandler) Handle(context.Context, caddy.Event) error {
	for h.start() {
	}
	h.onStart()
	return nil
}

// start sends what has been kept, in order, and reports whether there was anything; if not, events are sent at once from
// now on.
func (e *emitter) start() (more bool) {
	e.mu.Lock()
	early := e.early
	e.early = nil
	e.started.Store(len(early) == 0)
	e.mu.Unlock()
	for _, kept := range early {
		e.send(kept.name, kept.data)
	}
	return len(early) > 0
}

// running reports whether the config has started.
func (e *emitter) running() bool { return e == nil || e.started.Load() }

// emit sends an event, now or when the config has started. The data is not used after it.
func (e *emitter) emit(name string, data map[string]any) {
	if e == nil {
		return
	}
	if !e.running() {
		e.mu.Lock()
		if !e.running() {
			if len(e.early) < maxEarly {
				e.early = append(e.early, earlyEvent{name, data})
			}
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
	}
	e.send(name, data)
}

// send has the event handlers run. One that panics is no reason to leave a request unanswered.
func (e *emitter) send(name string, data map[string]any) {
	defer func() {
		if r := recover(); r != nil {
			e.ctx.Logger().Error("an event handler panicked", zap.String("event", name), zap.Any("panic", r))
		}
	}()
	e.app.Emit(e.ctx, name, data)
}

// changed notes a change, to be told once no lock is held.
func (v *visit) changed(c change) { v.changes = append(v.changes, c) }

// tell counts the changes that the visit brought about, and emits those that have an event. No lock may be held.
func (v *visit) tell() {
	for _, c := range v.changes {
		if c.begins {
			v.counters.benches.WithLabelValues(c.target, string(c.reason)).Inc()
		}
		if c.event != "" {
			v.logChange(c)
			v.emit(c)
		}
	}
	v.changes = v.changes[:0]
}

// emit sends a change to who listens now: a stream may outlive the config it began with.
func (v *visit) emit(c change) {
	p := v.provider.pool
	events := p.events
	if current := pools.current(p.name); current != nil {
		events = current.events
	} else if others := pools.all(); len(others) > 0 { // the pool is gone, but not who listens
		events = others[0].events
	}
	data := map[string]any{"pool": p.name, "provider": v.provider.name, "key": v.name, "account": v.account.name, "target": c.target}
	if c.reason != "" {
		data["reason"] = string(c.reason)
	}
	if !c.until.IsZero() {
		data["until"] = c.until.UTC().Format(time.RFC3339)
	}
	events.emit(c.event, data)
}
