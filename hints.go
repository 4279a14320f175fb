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
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// hints say which settings of a config that is right have no effect, or one that nobody can want. They are logged when
// it is loaded, and so shown by `caddy validate`. They are about what was written, never about a default.
func (h *Handler) hints(p *pool) []string {
	var hints hintList
	for _, provider := range p.providers {
		provider.hintKeys(&hints)
		provider.hintModels(&hints)
	}
	h.hintRetry(&hints, &p.policy)
	h.hintCircuit(&hints, len(p.credentials))
	h.hintTimes(&hints, &p.policy)
	weighted := func(p *Provider) bool { return slices.ContainsFunc(p.Keys, func(k *Key) bool { return k.Weight > 0 }) }
	if orZero(h.Select).Policy != "weighted_random" && slices.ContainsFunc(h.Providers, weighted) {
		hints.say("weight is of no use without select weighted_random")
	}
	return hints
}

type hintList []string

func (l *hintList) say(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

// hintKeys is about keys that are never asked in place of another, and models that no caller gets through to them.
func (p *provider) hintKeys(hints *hintList) {
	for i, c := range p.keys {
		for _, earlier := range p.keys[:i] {
			if earlier.sum == c.sum && covers(earlier.models, c.models) {
				hints.say("provider %s: keys %s and %s have one secret: the second is of no use", p.name, earlier.name, c.name)
				break
			}
		}
		for _, pattern := range c.models {
			if asked := p.config.Models; len(asked) > 0 && !slices.ContainsFunc(asked, func(m Model) bool { return overlap(pattern, m.Asked) }) {
				hints.say("provider %s: key %s is for the model %q, which the provider's models do not have", p.name, c.name, pattern)
			}
		}
	}
}

func (p *provider) hintModels(hints *hintList) {
	for i, m := range p.config.Models {
		for _, earlier := range p.config.Models[:i] {
			if matches(earlier.Asked, m.Asked) {
				hints.say("provider %s: the model %q is never looked at, since %q stands before it", p.name, m.Asked, earlier.Asked)
				break
			}
		}
	}
}

func (h *Handler) hintRetry(hints *hintList, pol *policy) {
	r := orZero(h.Retry)
	for _, class := range r.On {
		if class.Parent() == BadRequest {
			hints.say("retry: on %s: such failures are never tried again", class)
		}
	}
	for _, class := range r.SameKeyOn {
		if !pol.retries(class) {
			hints.say("retry: same_key_on %s: such failures are never tried again", class)
		}
	}
	off := len(pol.sameKey) == 0
	if off && len(r.SameKeyOn) > 0 {
		hints.say("retry: same_key_on is of no use with same_key off")
	}
	limit, what := pol.maxWait, "max_wait"
	if pol.sameKeyOn[RateLimit] && pol.limitedWait() > limit {
		limit, what = pol.limitedWait(), "the queue's wait"
	}
	if pol.window < limit {
		limit, what = pol.window, "the window"
	}
	var beyond []string
	for _, wait := range r.SameKey {
		if !off && time.Duration(wait) > limit {
			beyond = append(beyond, time.Duration(wait).String())
		}
	}
	if len(beyond) > 0 {
		hints.say("retry: same_key %s: longer than %s %v, so never waited", strings.Join(beyond, " "), what, limit)
	}
	switch {
	case r.Backoff > 0 && min(pol.backoff, pol.maxWait) > pol.window:
		hints.say("retry: backoff %v is longer than the window %v, so no retry that costs a wait is made", min(pol.backoff, pol.maxWait), pol.window)
	case time.Duration(r.Backoff) > pol.maxWait:
		hints.say("retry: backoff %v is cut to max_wait %v", pol.backoff, pol.maxWait)
	}
	if time.Duration(r.MaxWait) > pol.window {
		hints.say("retry: max_wait %v is longer than the window %v, in which attempts may start", pol.maxWait, pol.window)
	}
}

func (h *Handler) hintCircuit(hints *hintList, keys int) {
	c := orZero(h.Circuit)
	if slices.Contains(c.On, Unknown) {
		hints.say("circuit: on unknown: such failures are nobody's fault and never count")
	}
	switch {
	case c.Ramp > 0 && keys == 1:
		hints.say("circuit: ramp is of no use with one key")
	case c.Ramp > 0 && c.HalfOpen == "reset":
		hints.say("circuit: with half_open reset no success ends an open circuit, so no ramp follows it")
	}
}

// hintTimes is about times that reach beyond those that end a request.
func (h *Handler) hintTimes(hints *hintList, pol *policy) {
	if pol.gate.wait > pol.window {
		hints.say("limits: the queue's wait of %v is longer than the window %v, in which attempts may start", pol.gate.wait, pol.window)
	}
	t := orZero(h.Timeouts)
	for _, limit := range []struct {
		word  string
		value caddy.Duration
	}{{"headers", t.Headers}, {"first_token", t.FirstToken}} {
		if t.Deadline > 0 && limit.value >= t.Deadline {
			hints.say("timeouts: %s %v is not below the deadline %v, so a silent upstream leaves no time for another one",
				limit.word, time.Duration(limit.value), pol.deadline)
		}
	}
}

// covers reports whether a key with these models serves all that a later one with others does. No models are all models.
func covers(models, others []string) bool {
	if len(models) == 0 {
		return true
	}
	return len(others) > 0 && !slices.ContainsFunc(others, func(other string) bool {
		return !slices.ContainsFunc(models, func(m string) bool { return matches(m, other) })
	})
}

// overlap reports whether some name fits two patterns. Where both hold `*` only what stands before the first and after
// the last one can keep them apart: what is in between fits into the other's.
func overlap(a, b string) bool {
	if !strings.Contains(a, "*") || !strings.Contains(b, "*") {
		return matches(a, b) || matches(b, a)
	}
	beginA, endA := a[:strings.Index(a, "*")], a[strings.LastIndex(a, "*")+1:]
	beginB, endB := b[:strings.Index(b, "*")], b[strings.LastIndex(b, "*")+1:]
	return (strings.HasPrefix(beginA, beginB) || strings.HasPrefix(beginB, beginA)) && (strings.HasSuffix(endA, endB) || strings.HasSuffix(endB, endA))
}
