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
type secret struct {
	value string
	sum   string              // its SHA-256, in hex
	grams map[string]struct{} // every piece of leakLength bytes
	marks []string            // pieces of leakLength bytes side by side: a longer leak holds at least one of them
}

// leakLength is how many bytes of a secret in a row give some of it away. Providers mask keys to their first and last
// few characters; fewer than these are no more than such a mask.
const leakLength = 8

const redacted = "[redacted]"

func newSecret(value string) *secret {
	s := &secret{value: value, sum: fingerprint(value), grams: make(map[string]struct{})}
	n := min(leakLength, len(value))
	for i := 0; i+n <= len(value); i++ {
		s.grams[value[i:i+n]] = struct{}{}
		if i%n == 0 {
			s.marks = append(s.marks, value[i:i+n])
		}
	}
	return s
}

// String returns the fingerprint that operators see.
func (s *secret) String() string { return "sha256:" + s.sum[:8] }

// scrub returns b without any piece of the secret. It returns b itself where there is none.
func (s *secret) scrub(b []byte) []byte {
	n := min(leakLength, len(s.value))
	var clean []byte
	kept := 0
	for i := 0; i+n <= len(b); i++ {
		if _, leak := s.grams[string(b[i:i+n])]; !leak {
			continue
		}
		end := i + n
		for end < len(b) { // the leak goes on as long as its last n bytes are still a piece
			if _, more := s.grams[string(b[end+1-n:end+1])]; !more {
				break
			}
			end++
		}
		clean = append(append(clean, b[kept:i]...), redacted...)
		kept, i = end, end-1
	}
	if kept == 0 {
		return b
	}
	return append(clean, b[kept:]...)
}

// scrubHeader cleans a header in place. It runs on each answer, so it first looks for the marks alone.
func (s *secret) scrubHeader(h http.Header) {
	for _, values := range h {
		for i, v := range values {
			if len(v) >= len(s.marks[0]) && s.marked(v) {
				values[i] = string(s.scrub([]byte(v)))
			}
		}
	}
}

func (s *secret) marked(v string) bool {
	for _, m := range s.marks {
		if strings.Contains(v, m) {
			return true
		}
	}
	return false
}
