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
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmfailover/caddy-llm-failover/internal/headroom"
)

// maxFigures is how many limits of one answer are remembered. Vendors tell of two to six.
const maxFigures = 8

// headroomFacts is what the newest answer to a key said of its limits, for operators to see.
type headroomFacts struct {
	mu      sync.Mutex
	figures [maxFigures]headroom.Figure
	n       int
}

// accountFacts is what is known of an account.
type accountFacts struct {
	haltFacts
	spent spentFacts
}

// forget clears what was learned, for an operator's reset.
func (a *accountFacts) forget() {
	a.haltFacts.forget()
	a.spent.forget()
}

// spentFacts are the models for which nothing is left of one of an account's limits. It is no bench: what a vendor says
// is left is less sure than a refusal, so it only makes other keys better.
type spentFacts struct {
	any   atomic.Bool // the success path looks no further without it
	mu    sync.Mutex
	until map[string]time.Time // by the name sent upstream
}

// is reports whether nothing is left for a model.
func (s *spentFacts) is(model string, now time.Time) bool {
	if !s.any.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.until[model])
}

// note remembers until when nothing is left for a model; a time that is over: something is.
func (s *spentFacts) note(model string, until, now time.Time) {
	if over := !until.After(now); over && !s.any.Load() || len(model) > maxModelName {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.until, func(_ string, t time.Time) bool { return !t.After(now) })
	delete(s.until, model)
	if until.After(now) && len(s.until) < maxModels {
		if s.until == nil {
			s.until = make(map[string]time.Time)
		}
		s.until[model] = until
	}
	s.any.Store(len(s.until) > 0)
}

func (s *spentFacts) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = nil
	s.any.Store(false)
}

// recordHeadroom notes what an answer says is left of the key's limits.
func (v *visit) recordHeadroom(h http.Header, now time.Time) {
	if !v.provider.believed {
		return
	}
	var room [maxFigures]headroom.Figure
	figures := headroom.Read(h, now, room[:0])
	if len(figures) == 0 {
		return
	}
	_, until := headroom.Spent(figures, now)
	if limit := now.Add(v.provider.pool.policy.maxCooldown); until.After(limit) {
		until = limit
	}
	v.account.facts.spent.note(v.model, until, now)
	// An answer that another one is just noted for need not be seen.
	if k := &v.facts.headroom; k.mu.TryLock() {
		k.n = copy(k.figures[:], figures)
		k.mu.Unlock()
	}
}

// headroomView is one limit, as the admin API shows it.
type headroomView struct {
	Limit     *int64     `json:"limit,omitempty"`
	Remaining int64      `json:"remaining"`
	Reset     *time.Time `json:"reset,omitempty"`
}

// view returns what is shown of the limits whose reset has not come, by their names.
func (k *headroomFacts) view(now time.Time) map[string]headroomView {
	k.mu.Lock()
	defer k.mu.Unlock()
	var shown map[string]headroomView
	for _, f := range k.figures[:k.n] {
		if !f.Reset.IsZero() && !f.Reset.After(now) {
			continue
		}
		v := headroomView{Remaining: f.Remaining}
		if f.Limit >= 0 {
			v.Limit = &f.Limit
		}
		if reset := f.Reset.UTC(); !f.Reset.IsZero() {
			v.Reset = &reset
		}
		if shown == nil {
			shown = make(map[string]headroomView)
		}
		shown[f.Name] = v
	}
	return shown
}

// forget clears what was learned, for an operator's reset.
func (k *headroomFacts) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.n = 0
}
