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
	"hash/fnv"
	"math"
	"sync/atomic"
	"time"
)

// pick applies the pool's policy. Where all keys are healthy it looks at few of them.
func (cs *candidates) pick(last *credential, places where, now time.Time) *credential {
	keys, random := cs.pool.credentials, cs.pool.random
	switch cs.pool.selection.policy {
	case selectRoundRobin:
		return cs.inTurn(last, places, now)
	case selectRandom:
		return cs.best(last, places, now, int(random()*float64(len(keys))), func(*credential) float64 { return random() })
	case selectWeightedRandom:
		// Efraimidis and Spirakis: the largest u^(1/w) falls on each key as often as its share of the weights.
		return cs.best(last, places, now, cs.pool.selection.weighted(random()), func(c *credential) float64 {
			return math.Log(random()) / float64(c.weight)
		})
	case selectLeastInFlight:
		return cs.leastInFlight(last, places, now, int(random()*float64(len(keys))))
	case selectSticky:
		// Rendezvous hashing: when a key goes or comes, only its own callers move.
		return cs.nearest(last, places, now)
	}
	for _, c := range keys {
		if cs.eligible(c, last, places, now) {
			return c
		}
	}
	return nil
}

// inTurn gives each key its turn among those that may serve such a request; on failover the others follow in their
// order. Where all may and are healthy it looks at one only.
func (cs *candidates) inTurn(last *credential, places where, now time.Time) *credential {
	keys, n := cs.pool.credentials, len(cs.pool.credentials)
	if cs.first > 0 {
		for i := range n {
			if c := keys[(cs.first+i)%n]; cs.eligible(c, last, places, now) {
				return c
			}
		}
		return nil
	}
	own := 0 // requests that only some keys serve have turns of their own
	for cs.pool.selective && own < n-1 && !keys[own].serves(cs.dialect, cs.model) {
		own++
	}
	turn := cs.pool.selection.turns[own].Add(1) - 1
	at := int(turn % uint64(n))
	if cs.pool.selective || !cs.eligible(keys[at], last, places, now) {
		var eligible []int
		for i, c := range keys {
			if cs.eligible(c, last, places, now) {
				eligible = append(eligible, i)
			}
		}
		if len(eligible) == 0 {
			return nil
		}
		at = eligible[turn%uint64(len(eligible))]
	}
	cs.first = at + 1
	return keys[at]
}

// nearest returns the eligible key whose hash, mixed with the caller's, is the highest. The hashes stand side by side:
// it looks at all of them, and at few of the keys.
func (cs *candidates) nearest(last *credential, places where, now time.Time) *credential {
	var best *credential
	high := uint64(0)
	for i, hash := range cs.pool.selection.hashes {
		if s := mix(hash ^ cs.sticky); s >= high && cs.eligible(cs.pool.credentials[i], last, places, now) {
			best, high = cs.pool.credentials[i], s
		}
	}
	return best
}

// leastInFlight looks from a random place on, and no further than the first idle key: with many keys that is near.
func (cs *candidates) leastInFlight(last *credential, places where, now time.Time, start int) *credential {
	var best *credential
	least := int64(math.MaxInt64)
	for i := range cs.pool.credentials {
		c := cs.pool.credentials[(start+i)%len(cs.pool.credentials)]
		if n := c.facts.inFlight.Load(); n < least && cs.eligible(c, last, places, now) {
			if best, least = c, n; n == 0 {
				break
			}
		}
	}
	return best
}

// best returns the eligible key with the highest score; the one at guess (if not negative) wins unseen if it is eligible.
func (cs *candidates) best(last *credential, places where, now time.Time, guess int, score func(*credential) float64) *credential {
	if guess >= 0 && cs.eligible(cs.pool.credentials[guess], last, places, now) {
		return cs.pool.credentials[guess]
	}
	var best *credential
	high := math.Inf(-1)
	for _, c := range cs.pool.credentials {
		if s := score(c); s > high && cs.eligible(c, last, places, now) {
			best, high = c, s
		}
	}
	return best
}

// hashOf is a hash that is the same in every process.
func hashOf(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

// mix spreads the bits of x (the finalizer of SplitMix64, Steele, Lea and Flood 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// The selection policies, as the config names them.
const (
	selectFirst          = "first"
	selectRoundRobin     = "round_robin"
	selectRandom         = "random"
	selectWeightedRandom = "weighted_random"
	selectLeastInFlight  = "least_in_flight"
	selectSticky         = "sticky"
)

// selection is a pool's policy with what it needs to be quick.
type selection struct {
	policy      string
	placeholder string          // sticky
	hashes      []uint64        // sticky: of the keys, in their order
	turns       []atomic.Uint64 // round_robin: of the requests that such a key is the first to serve
	shares      []float64       // weighted_random: the running sum of shares, up to 1
}

// weighted returns the index on whose share x, from 0 to 1, falls.
func (s *selection) weighted(x float64) int {
	lo, hi := 0, len(s.shares)-1
	for lo < hi {
		if mid := (lo + hi) / 2; s.shares[mid] > x {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}
