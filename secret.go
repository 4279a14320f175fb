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
	"net/http"
	"strings"
)

// secret is a credential's value. It formats as its fingerprint, so that it cannot slip into a log or an error.
//
// What an upstream echoes of it is looked for in every answer and every event, so the search is made to be cheap: it
// looks at every fourth place only (see mayLeak); where that does not rule a leak out it rolls a window over all
// bytes, and asks a filter first and only then the set of all pieces.
type secret struct {
	value      string
	sum        string         // its SHA-256, in hex
	grams      map[uint64]int // where in the value each piece stands
	filter     [128]uint64    // a bit for each hash of a piece: 1 KiB, so that few bits of it are set
	spelt      *secret        // as some write it in JSON, if that is not the same
	gram       int            // how long the pieces are
	windowMask uint64         // what of a window is one
	blocks     [512]uint64    // a bit for each hash of half a piece: 4 KiB
}

// leakLength is how many bytes of a secret in a row give some of it away. Providers mask keys to their first and last
// few characters; fewer than these are no more than such a mask. A shorter secret is only looked for as a whole.
const leakLength = 8

const redacted = "[redacted]"

func newSecret(value string) *secret {
	s := &secret{value: value, sum: fingerprint(value), grams: make(map[uint64]int), gram: min(leakLength, len(value))}
	s.windowMask = 1<<(8*s.gram) - 1
	for i := 3; i < len(value); i++ {
		word, bit := blockBit(uint32(value[i-3]) | uint32(value[i-2])<<8 | uint32(value[i-1])<<16 | uint32(value[i])<<24)
		s.blocks[word] |= bit
	}
	var window uint64
	public := publicPrefix(value)
	for i := range len(value) {
		window = s.roll(window, value[i])
		if i+1 >= s.gram && i >= public { // a piece with something in it that is not known to everybody
			s.grams[window] = i + 1 - s.gram
			word, bit := filterBit(window)
			s.filter[word] |= bit
		}
	}
	return s
}

// publicPrefixes are what vendors' keys begin with, from their own documentation. They say whose a key is and nothing
// of it, and models write them all day into examples of configuration. Of several that fit, the longest stands first.
var publicPrefixes = []string{
	"sk-ant-api03-", "sk-ant-admin01-", "sk-ant-oat01-", "sk-ant-", "sk-proj-", "sk-svcacct-", "sk-admin-", "sk-or-v1-", "sk-or-",
	"sk-", "gsk_", "xai-", "pplx-", "AIzaSy", "hf_", "nvapi-", "csk-", "fw_", "r8_", "github_pat_", "ghp_", "tgp_v1_", "bce-v3/ALTAK-",
}

func publicPrefix(value string) int {
	for _, p := range publicPrefixes {
		if strings.HasPrefix(value, p) {
			return len(p)
		}
	}
	return 0
}

// withSpelling adds what PHP and its likes make of a slash in JSON.
func (s *secret) withSpelling() *secret {
	if spelt := strings.ReplaceAll(s.value, "/", `\/`); spelt != s.value {
		s.spelt = newSecret(spelt)
	}
	return s
}

// blockBit spreads half pieces over the blocks.
func blockBit(half uint32) (word uint32, bit uint64) {
	h := half * 0x9e3779b1 >> 17
	return h >> 6, 1 << (h & 63)
}

// mayLeak reports whether b may hold a piece of the secret. Wherever eight bytes in a row begin, four of them stand at
// an index that four divides: it is enough to look there.
func mayLeak[T string | []byte](s *secret, b T) bool {
	if s.gram < leakLength {
		return true
	}
	for i := 3; i < len(b); i += leakLength / 2 {
		word, bit := blockBit(uint32(b[i-3]) | uint32(b[i-2])<<8 | uint32(b[i-1])<<16 | uint32(b[i])<<24)
		if s.blocks[word]&bit != 0 {
			return true
		}
	}
	return false
}

// String returns the fingerprint that operators see.
func (s *secret) String() string { return "sha256:" + s.sum[:8] }

// roll moves a window of gram bytes on by one.
func (s *secret) roll(window uint64, next byte) uint64 {
	return (window<<8 | uint64(next)) & s.windowMask
}

// filterBit spreads windows over the filter (Fibonacci hashing).
func filterBit(window uint64) (word, bit uint64) {
	h := window * 0x9e3779b97f4a7c15 >> 51
	return h >> 6, 1 << (h & 63)
}

// leak returns where the first piece of the secret stands in b from an index on, as long as it goes on; or -1.
func leak[T string | []byte](s *secret, b T, from int) (start, end int) {
	var window uint64
	mask, filter := s.windowMask, &s.filter
	start = -1
	for i := from; i < len(b); i++ {
		window = (window<<8 | uint64(b[i])) & mask
		if i-from+1 < s.gram {
			continue
		}
		word, bit := filterBit(window)
		at, known := 0, filter[word]&bit != 0
		if known {
			at, known = s.grams[window]
		}
		switch {
		case known && start < 0:
			start, end = i+1-s.gram, i+1
			for ; at > 0 && start > from && b[start-1] == s.value[at-1]; at-- { // the public prefix goes with it
				start--
			}
		case known:
			end = i + 1
		case start >= 0:
			return start, end
		}
	}
	return start, end
}

// scrub returns b without any piece of the secret. It returns b itself where there is none.
func (s *secret) scrub(b []byte) []byte {
	if s.spelt != nil {
		b = s.spelt.scrub(b)
	}
	if !mayLeak(s, b) {
		return b
	}
	start, end := leak(s, b, 0)
	if start < 0 {
		return b
	}
	var clean []byte
	kept := 0
	for start >= 0 {
		clean = append(append(clean, b[kept:start]...), redacted...)
		kept = end
		start, end = leak(s, b, kept)
	}
	return append(clean, b[kept:]...)
}

// mask is scrub in place, for where the length has been told.
func (s *secret) mask(b []byte) []byte {
	if !mayLeak(s, b) {
		return b
	}
	for start, end := leak(s, b, 0); start >= 0; start, end = leak(s, b, end) {
		for i := start; i < end; i++ {
			b[i] = '*'
		}
	}
	return b
}

// scrubHeader cleans a header in place.
func (s *secret) scrubHeader(h http.Header) {
	for _, values := range h {
		for i, v := range values {
			if mayLeak(s, v) || s.spelt != nil {
				values[i] = string(s.scrub([]byte(v)))
			}
		}
	}
}
