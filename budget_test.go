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

func TestBudget(t *testing.T) {
	rate := budgetRate{share: 0.2, perSecond: 10}
	start := time.Unix(1_000_000, 0)
	takeAll := func(b *budget, now time.Time) int {
		n := 0
		for b.take(rate, now) {
			n++
		}
		return n
	}

	t.Run("is full at first, with what five seconds add", func(t *testing.T) {
		if got := takeAll(new(budget), start); got != 50 {
			t.Errorf("it held %d tokens, want 50", got)
		}
	})
	t.Run("fills with time, and no further than full", func(t *testing.T) {
		b := new(budget)
		takeAll(b, start)
		if got := takeAll(b, start.Add(1500*time.Millisecond)); got != 15 {
			t.Errorf("1.5 s added %d tokens, want 15", got)
		}
		if got := takeAll(b, start.Add(time.Hour)); got != 50 {
			t.Errorf("an hour added %d tokens, want 50", got)
		}
	})
	t.Run("fills with successes", func(t *testing.T) {
		b := new(budget)
		takeAll(b, start)
		for range 50 {
			b.earn(rate, start)
		}
		if got := takeAll(b, start); got < 9 || got > 10 { // tokens are fractions
			t.Errorf("50 successes added %d tokens, want 10", got)
		}
	})
	t.Run("looks no further while it is full", func(t *testing.T) {
		b := new(budget)
		b.earn(rate, start)
		if !b.full.Load() {
			t.Fatal("a full one does not say so")
		}
		b.take(rate, start)
		if b.full.Load() {
			t.Error("one that is not full says that it is")
		}
	})
	t.Run("never holds less than one token when full", func(t *testing.T) {
		b, slow := new(budget), budgetRate{share: 0.01, perSecond: 0.001}
		if !b.take(slow, start) || b.take(slow, start) {
			t.Error("want one token and no more")
		}
	})
	t.Run("keeps to a smaller capacity after a reload", func(t *testing.T) {
		b, smaller := new(budget), budgetRate{share: 0.2, perSecond: 1}
		b.earn(rate, start)
		n := 0
		for b.take(smaller, start) {
			n++
		}
		if n != 5 {
			t.Errorf("it held %d tokens, want 5", n)
		}
	})
}
