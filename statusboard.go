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
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// statusBoards has the one statusBoard while some config has a status page, so that its plots outlive reloads.
var statusBoards = caddy.NewUsagePool()

const statusBoardKey = "board"

// statusBoard is what the status pages of the process share: how many watch, and what was seen while somebody looked.
// Nothing runs in the background: whoever looks takes the sample, at most one a second.
type statusBoard struct {
	mu        sync.Mutex // not held while the state is read, which takes other locks
	watchers  int
	newest    *statusView
	histories map[string]*history // by pool
}

// Destruct implements caddy.Destructor.
func (*statusBoard) Destruct() error { return nil }

func (b *statusBoard) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers == maxWatchers {
		return false
	}
	b.watchers++
	return true
}

func (b *statusBoard) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watchers--
}

// look returns the state as it is now, or as somebody saw it less than maxAge ago.
func (b *statusBoard) look(now time.Time, maxAge time.Duration) *statusView {
	b.mu.Lock()
	newest := b.newest
	b.mu.Unlock()
	if newest != nil && now.Sub(newest.At) < maxAge {
		return newest
	}
	shown := make(map[string]*poolStatus)
	for _, p := range pools.all() {
		shown[p.name] = &poolStatus{poolView: p.view(now)}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.newest != nil && now.Before(b.newest.At) { // another watcher was faster
		return b.newest
	}
	b.note(now, shown)
	b.newest = newStatusView(now, shown)
	return b.newest
}

// note adds what happened since the last sample to the histories, forgets those of what is gone, and completes what
// is shown.
func (b *statusBoard) note(now time.Time, shown map[string]*poolStatus) {
	histories := make(map[string]*history, len(shown))
	for name, p := range shown {
		h := b.histories[name]
		if h == nil {
			h = new(history)
		}
		h.note(now, p.poolView)
		p.Rates, p.KeyRates, p.bars = rateOf(h.bars[:], now, rateBars), h.keyRates(now), h.bars
		histories[name] = h
	}
	b.histories = histories
}

// A history is bars of what happened in five seconds each. What was asked while nobody looked is left out: it would be
// an average over any time.
const (
	barWidth = 5 * time.Second
	plotBars = 60           // of a pool
	rateBars = 3            // of what is called the present, and of each key
	maxGap   = 3 * barWidth // between two samples
)

type history struct {
	at   time.Time // of the newest sample
	bars [plotBars]bar
	keys map[keyName]*keyHistory
}

type keyName struct{ provider, key string }

type keyHistory struct {
	totals totalsView
	bars   [rateBars]bar
}

// bar is what happened in one slot of five seconds, as far as it was looked at.
type bar struct {
	slot int64
	span time.Duration
	totalsView
}

func slotOf(now time.Time) int64 { return now.UnixNano() / int64(barWidth) }

// note takes a sample, if the last one is long enough ago.
func (h *history) note(now time.Time, v poolView) {
	span := now.Sub(h.at)
	if span < nearlyInterval {
		return
	}
	keys := make(map[keyName]*keyHistory)
	var sum totalsView
	for provider, p := range v.Providers {
		for key, k := range p.Keys {
			name := keyName{provider, key}
			known := h.keys[name]
			if known == nil {
				keys[name] = &keyHistory{totals: k.Totals}
				continue
			}
			keys[name] = known
			since := k.Totals
			if since.Attempts >= known.totals.Attempts && since.Failures >= known.totals.Failures { // else the key has a new secret
				since.Attempts -= known.totals.Attempts
				since.Failures -= known.totals.Failures
			}
			known.totals = k.Totals
			if span <= maxGap {
				addTo(known.bars[:], now, span, since)
				sum.Attempts += since.Attempts
				sum.Failures += since.Failures
			}
		}
	}
	if span <= maxGap {
		addTo(h.bars[:], now, span, sum)
	}
	h.at, h.keys = now, keys
}

func (h *history) keyRates(now time.Time) map[string]map[string]*ratesView {
	rates := make(map[string]map[string]*ratesView)
	for name, k := range h.keys {
		if rates[name.provider] == nil {
			rates[name.provider] = make(map[string]*ratesView)
		}
		rates[name.provider][name.key] = rateOf(k.bars[:], now, rateBars)
	}
	return rates
}

func addTo(bars []bar, now time.Time, span time.Duration, since totalsView) {
	slot := slotOf(now)
	b := &bars[slot%int64(len(bars))]
	if b.slot != slot {
		*b = bar{slot: slot}
	}
	b.span += span
	b.Attempts += since.Attempts
	b.Failures += since.Failures
}

// rateOf is what happened a second in the newest n bars; nil if nobody looked.
func rateOf(bars []bar, now time.Time, n int64) *ratesView {
	var sum bar
	for _, b := range bars {
		if b.slot > slotOf(now)-n {
			sum.span += b.span
			sum.Attempts += b.Attempts
			sum.Failures += b.Failures
		}
	}
	return sum.rates()
}

func (b *bar) rates() *ratesView {
	if b.span == 0 {
		return nil
	}
	return &ratesView{float64(b.Attempts) / b.span.Seconds(), float64(b.Failures) / b.span.Seconds()}
}
