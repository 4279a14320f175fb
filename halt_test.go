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
	"testing"
	"time"
)

// haltPlay plays events on a bench. Halts are 60 s × 2ⁿ, at most 5 min.
type haltPlay struct {
	bench
	seq   counter
	start time.Time
	now   time.Time
}

func newHaltPlay() *haltPlay {
	now := time.Unix(1e9, 0)
	return &haltPlay{start: now, now: now}
}

func (p *haltPlay) halt(reason Class, hint time.Duration) { p.haltSince(uint64(p.seq), reason, hint) }

func (p *haltPlay) haltSince(start uint64, reason Class, hint time.Duration) {
	p.bench.halt(Verdict{Class: reason, Wait: hint}, start, p.now, time.Minute, 5*time.Minute, p.seq.next)
}

func (p *haltPlay) rest(reason Class, d time.Duration) {
	p.bench.rest(Verdict{Class: reason, Wait: d}, uint64(p.seq), p.now, p.seq.next)
}

func (p *haltPlay) after(d time.Duration) { p.now = p.now.Add(d) }

// want compares the reason, the strikes, and how long it still lasts.
func (p *haltPlay) want(t *testing.T, reason Class, strikes int, lasts time.Duration) {
	t.Helper()
	if got := p.until.Sub(p.now); p.reason != reason || p.strikes != strikes || got != lasts {
		t.Errorf("%s, %d strikes, for %v; want %s, %d, for %v", p.reason, p.strikes, got, reason, strikes, lasts)
	}
}

func TestHaltDoubles(t *testing.T) {
	p := newHaltPlay()
	for n, lasts := range []time.Duration{1, 2, 4, 5, 5, 5} {
		p.halt(BillingError, 0)
		p.want(t, BillingError, n+1, lasts*time.Minute)
		if !p.active(p.now) || p.ending(p.now) {
			t.Error("it does not last")
		}
		p.after(lasts * time.Minute)
		if p.active(p.now) || !p.ending(p.now) {
			t.Error("it does not end")
		}
	}
	if p.since != p.start {
		t.Errorf("since %v", p.since)
	}
	p.clear(uint64(p.seq), p.seq.next)
	if p.reason != "" || p.ending(p.now) {
		t.Error("a success does not clear it")
	}
	p.halt(BillingError, 0)
	p.want(t, BillingError, 1, time.Minute)
}

func TestHaltTakesAHint(t *testing.T) {
	p := newHaltPlay()
	p.halt(QuotaExhausted, 3*time.Hour)
	p.want(t, QuotaExhausted, 1, 3*time.Hour)
	p.after(3 * time.Hour)
	p.halt(QuotaExhausted, 0)
	p.want(t, QuotaExhausted, 2, 2*time.Minute)
	p.after(2 * time.Minute)
	p.halt(QuotaExhausted, 10*time.Second)
	p.want(t, QuotaExhausted, 3, 10*time.Second)
}

// TestHaltStaleEvidence: a hundred callers who met the same failure are one strike; a late hint may only extend.
func TestHaltStaleEvidence(t *testing.T) {
	p := newHaltPlay()
	begun := uint64(p.seq)
	for range 100 {
		p.haltSince(begun, BillingError, 0)
		p.after(time.Millisecond)
	}
	p.want(t, BillingError, 1, time.Minute-100*time.Millisecond)
	p.haltSince(begun, BillingError, 10*time.Second)
	p.want(t, BillingError, 1, time.Minute-100*time.Millisecond)
	p.haltSince(begun, BillingError, 10*time.Minute)
	p.want(t, BillingError, 1, 10*time.Minute)

	p.after(10 * time.Minute)
	p.haltSince(begun, BillingError, 10*time.Minute)
	p.want(t, BillingError, 1, 0)

	p.clear(begun, p.seq.next)
	if p.reason == "" {
		t.Error("an old success cleared it")
	}
	old := uint64(p.seq)
	p.halt(BillingError, 0)
	p.clear(uint64(p.seq), p.seq.next)
	p.haltSince(old, BillingError, time.Hour)
	if p.reason != "" {
		t.Error("what began before it was cleared halts it again")
	}
}

// TestRestNeverShortens: of two hints the longer counts, whichever came first.
func TestRestNeverShortens(t *testing.T) {
	p := newHaltPlay()
	p.rest(RateLimit, 20*time.Second)
	p.want(t, RateLimit, 0, 20*time.Second)
	p.after(time.Second)
	p.rest(RateLimit, 5*time.Second)
	p.want(t, RateLimit, 0, 19*time.Second)
	p.rest(RateLimit, 30*time.Second)
	p.want(t, RateLimit, 0, 30*time.Second)
	if p.since != p.start {
		t.Error("it forgot since when it lasts")
	}
	p.after(30 * time.Second)
	if p.active(p.now) || p.ending(p.now) {
		t.Error("a rest needs no probe")
	}
	p.rest(RateLimit, time.Second)
	p.want(t, RateLimit, 0, time.Second)
	if p.since != p.now {
		t.Error("a new rest began earlier")
	}
}

// TestRestLeavesAHaltOne: a limit may make it longer, but says nothing about what halted it.
func TestRestLeavesAHaltOne(t *testing.T) {
	p := newHaltPlay()
	p.halt(BillingError, 0)
	p.rest(RateLimit, time.Second)
	p.want(t, BillingError, 1, time.Minute)
	p.rest(RateLimit, 2*time.Minute)
	p.want(t, BillingError, 1, 2*time.Minute)
	p.after(2 * time.Minute)
	p.rest(RateLimit, time.Second) // of its probe
	p.want(t, BillingError, 1, time.Second)
	if ended := p.clear(uint64(p.seq), p.seq.next); !ended || p.since != (time.Time{}) {
		t.Error("a success does not end it")
	}
}

// TestHaltFreesTheProbe: whoever probed before a halt began anew does not hold back the next probe.
func TestHaltFreesTheProbe(t *testing.T) {
	p := newHaltPlay()
	p.halt(BillingError, 0)
	p.after(time.Minute)
	p.probe = &visit{}
	p.halt(BillingError, 0)
	if p.probe != nil {
		t.Error("the slot is still taken")
	}
}

func TestDoubled(t *testing.T) {
	for _, tc := range []struct {
		base  time.Duration
		n     int
		limit time.Duration
		want  time.Duration
	}{
		{time.Second, 0, time.Minute, time.Second},
		{time.Second, 3, time.Minute, 8 * time.Second},
		{time.Second, 6, time.Minute, time.Minute},
		{time.Second, 1 << 40, time.Minute, time.Minute},
		{time.Minute, 0, time.Second, time.Second},
	} {
		if got := doubled(tc.base, tc.n, tc.limit); got != tc.want {
			t.Errorf("%v × 2^%d, at most %v: %v, want %v", tc.base, tc.n, tc.limit, got, tc.want)
		}
	}
}
