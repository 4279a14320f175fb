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
	"sync/atomic"
	"time"
)

// budget bounds how much of a provider's traffic may be repeats, so that retries cannot keep a provider down that
// they helped to bring down. It is a bucket of tokens, full at first: each success adds a share of one, each second a
// few, and each charged repeat takes one. (Finagle's RetryBudget is of this kind.)
type budget struct {
	full atomic.Bool // the success path looks no further while it is

	mu     sync.Mutex
	tokens float64
	at     time.Time // when tokens was counted; zero: never
}

// budgetReach is how long a bucket takes to fill without any success. By default it then holds 50: as many callers who
// meet one bad key at once are all served, and of 300 who meet a total outage no more than every sixth asks twice.
const budgetReach = 5 * time.Second

// budgetRate is how a budget fills, as the config has it.
type budgetRate struct {
	share     float64 // of a token for each success
	perSecond float64
}

// capacity is how many tokens a bucket holds: at least one, or nothing would ever be repeated.
func (r budgetRate) capacity() float64 {
	return max(r.perSecond*budgetReach.Seconds(), 1)
}

// count brings the tokens up to now; the lock is held.
func (b *budget) count(rate budgetRate, now time.Time) {
	if b.at.IsZero() {
		b.tokens = rate.capacity()
	} else if passed := now.Sub(b.at); passed > 0 {
		b.tokens += passed.Seconds() * rate.perSecond
	}
	b.tokens, b.at = min(b.tokens, rate.capacity()), now
}

// earn adds what a success is worth.
func (b *budget) earn(rate budgetRate, now time.Time) {
	if b.full.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(rate, now)
	b.tokens = min(b.tokens+rate.share, rate.capacity())
	b.full.Store(b.tokens == rate.capacity())
}

// left is how many tokens it holds.
func (b *budget) left(rate budgetRate, now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(rate, now)
	return b.tokens
}

// reset fills it.
func (b *budget) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens, b.at = 0, time.Time{}
}

// take takes a token, if there is one.
func (b *budget) take(rate budgetRate, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count(rate, now)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	b.full.Store(false)
	return true
}
