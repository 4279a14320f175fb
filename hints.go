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
	"fmt"
	"slices"
	"time"
)

// hints say which settings of a config that is right have no effect, or one that nobody can want. They are logged when
// it is loaded, and so shown by `caddy validate`.
func (h *Handler) hints(p *pool) []string {
	var hints []string
	say := func(format string, args ...any) { hints = append(hints, fmt.Sprintf(format, args...)) }
	for _, provider := range p.providers {
		for i, c := range provider.keys {
			for _, other := range provider.keys[:i] {
				if other.sum == c.sum {
					say("provider %s: keys %s and %s have one secret: the second is of no use", provider.name, other.name, c.name)
				}
			}
			for _, pattern := range c.models {
				if asked := provider.config.Models; len(asked) > 0 && !slices.ContainsFunc(asked, func(m Model) bool { return overlap(pattern, m.Asked) }) {
					say("provider %s: key %s is for the model %q, which the provider's models do not have", provider.name, c.name, pattern)
				}
			}
		}
		for i, m := range provider.config.Models {
			for _, earlier := range provider.config.Models[:i] {
				if matches(earlier.Asked, m.Asked) {
					say("provider %s: the model %q is never looked at, since %q stands before it", provider.name, m.Asked, earlier.Asked)
					break
				}
			}
		}
	}
	pol := &p.policy
	for _, wait := range pol.sameKey {
		switch {
		case wait > pol.maxWait:
			say("retry: same_key %v is longer than max_wait %v, so it is never waited", wait, pol.maxWait)
		case wait > pol.window:
			say("retry: same_key %v is longer than the window %v, so it is never waited", wait, pol.window)
		}
	}
	for _, w := range []struct {
		what string
		d    time.Duration
	}{{"retry: backoff", pol.backoff}, {"limits: the queue's wait", pol.gate.wait}} {
		if w.d > pol.window {
			say("%s of %v is longer than the window %v, in which attempts may start", w.what, w.d, pol.window)
		}
	}
	if pol.deadline > 0 && pol.headers >= pol.deadline {
		say("timeouts: headers %v is not below the deadline %v, so a silent upstream leaves no time for another one", pol.headers, pol.deadline)
	}
	if pol.ramp > 0 && len(p.credentials) == 1 {
		say("circuit: ramp is of no use with one key")
	}
	return hints
}

// overlap reports whether a name may fit two patterns, as far as either is a name itself.
func overlap(a, b string) bool { return matches(a, b) || matches(b, a) }
