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
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// What the official SDKs, which Stainless generates, tell of themselves: how often they have tried this request
// before, and how long they will wait (in seconds; the Python ones name the read timeout apart).
const (
	fieldRetryCount  = "X-Stainless-Retry-Count"
	fieldTimeout     = "X-Stainless-Timeout"
	fieldReadTimeout = "X-Stainless-Read-Timeout"
)

// isRetry reports whether the caller itself tries a request again. Waiting is then its part: were we to wait, too, the
// waits would multiply.
func isRetry(h http.Header) bool {
	n, err := strconv.Atoi(h.Get(fieldRetryCount))
	return err == nil && n > 0
}

// patience is how long the caller says it will wait, or 0; own is a field of the config's, or empty. Nothing is gained
// by going on after that.
func patience(h http.Header, own string) time.Duration {
	var least time.Duration
	for _, field := range [...]string{fieldTimeout, fieldReadTimeout, own} {
		if field == "" || h[field] == nil {
			continue
		}
		if d := waitSaid(h.Get(field)); d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// waitSaid reads a time in seconds, or with its unit. It is 0 for what is neither, or no limit.
func waitSaid(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if seconds, plain := strconv.ParseFloat(text, 64); plain == nil && seconds < maxPatience.Seconds() {
		d, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || d <= 0 || d >= maxPatience {
		return 0
	}
	return d
}

// maxPatience: more than a day is no limit.
const maxPatience = 24 * time.Hour

// fieldIdempotencyKey names a request, so that an upstream can tell that it is the same one again
// (draft-ietf-httpapi-idempotency-key-header).
const fieldIdempotencyKey = "Idempotency-Key"

// seenKeys remembers the newest idempotency keys of callers, to know a request that its caller tries again. Each has
// one place, by its hash, and the next in that place displaces it: nothing grows and nobody waits.
type seenKeys struct {
	table atomic.Pointer[[seenPlaces]atomic.Uint64]
}

// seenPlaces take 64 KiB in a pool whose callers use such keys.
const seenPlaces = 8 << 10

// seenSeed keeps callers from choosing each other's places.
var seenSeed = maphash.MakeSeed()

// again reports whether the key has come before, and remembers it.
func (s *seenKeys) again(key string) bool {
	if key == "" {
		return false
	}
	table := s.table.Load()
	if table == nil {
		s.table.CompareAndSwap(nil, new([seenPlaces]atomic.Uint64))
		table = s.table.Load()
	}
	sum := maphash.String(seenSeed, key) | 1 // zero is an empty place
	return table[(sum>>1)%seenPlaces].Swap(sum) == sum
}

// idempotencyKey is what names the request to one provider, in all attempts there, where the caller has not named it.
func (in *inbound) idempotencyKey(provider uint64) string {
	if in.nonce == [2]uint64{} {
		in.nonce = [2]uint64{rand.Uint64(), rand.Uint64()}
	}
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], in.nonce[0])
	binary.BigEndian.PutUint64(id[8:], mix(in.nonce[1]^provider))
	return hex.EncodeToString(id[:])
}
