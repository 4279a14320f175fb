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

// Package hint reads every way in which an upstream says "wait": header fields and bodies become one duration.
//
// What it returns is what was said, bounded only so that it cannot be absurd; how long anybody rests for it is
// decided elsewhere. What has passed, is negative or is no time at all is no hint.
package hint

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// Max is the longest hint that is believed. Anything beyond it is a mistake and no hint at all.
const Max = 400 * 24 * time.Hour

// Hint is how long an upstream asks to be left alone.
type Hint struct {
	Wait time.Duration // zero: it did not say
	Raw  string        // how it said it: a field's value or part of a sentence, at most maxRaw bytes
}

const maxRaw = 80

func (h Hint) longer(other Hint) Hint {
	if other.Wait > h.Wait {
		return other
	}
	return h
}

// Read returns the hint of a failed answer. With limited, the answer was a limit, and the reset times of the limits
// that have nothing left count, too; other answers bear them as well, for the caller's information.
//
// Times are read relative to the upstream's own Date, so that a clock that is wrong does not matter.
func Read(h http.Header, body []byte, now time.Time, limited bool) Hint {
	now = upstreamTime(h.Get("Date"), now)
	said := fields(h, now)
	if len(body) > 0 {
		inBody, dayQuota := fromBody(body, now)
		switch {
		case limited && inBody.Wait > shortest:
			// A window of hours in the body outlasts a proxy's usual "Retry-After: 1".
			said = said.longer(inBody)
		case said.Wait == 0:
			said = inBody
		}
		if dayQuota && said.Wait <= shortest {
			// Google says seconds for quotas that last until midnight.
			return Hint{}
		}
	}
	if limited && said.Wait == 0 {
		said = buckets(h, now).longer(unified(h, now))
	}
	return said
}

// shortest separates throttles from windows.
const shortest = 5 * time.Minute

// Wait is the wait of [Read] for an answer that was a limit.
func Wait(h http.Header, body []byte, now time.Time) time.Duration {
	return Read(h, body, now, true).Wait
}

// upstreamTime is what the upstream's clock shows.
func upstreamTime(date string, now time.Time) time.Time {
	if t, err := http.ParseTime(date); err == nil {
		return t
	}
	return now
}

// fields reads the header fields that name a wait outright. The millisecond forms are the exact ones and win; of
// several Retry-After lines the longest counts.
func fields(h http.Header, now time.Time) Hint {
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if hint := longestOf(h.Values(name), func(v string) time.Duration { return number(v, time.Millisecond) }); hint.Wait > 0 {
			return hint
		}
	}
	retryAfter := func(v string) time.Duration { return retryAfter(v, now) }
	for _, name := range []string{"Retry-After", "X-Retry-After"} {
		if hint := longestOf(h.Values(name), retryAfter); hint.Wait > 0 {
			return hint
		}
	}
	return Hint{}
}

func longestOf(values []string, parse func(string) time.Duration) (longest Hint) {
	for _, v := range values {
		longest = longest.longer(Hint{parse(v), clip(v)})
	}
	return longest
}

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxRaw)], "") }

// retryAfter reads one Retry-After: seconds, whole or with a fraction, or one of the three forms of an HTTP date.
// Some servers send a duration with its unit, or the time itself in epoch seconds.
func retryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if t, err := http.ParseTime(value); err == nil {
		return until(t, now)
	}
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return until(t, now)
	}
	if strings.Contains(value, ",") { // two lines, joined on their way
		var longest time.Duration
		for v := range strings.SplitSeq(value, ",") {
			longest = max(longest, moment(strings.TrimSpace(v), now))
		}
		return longest
	}
	return moment(value, now)
}

// CleanRetryAfter returns the Retry-After to hand on, from all lines of the upstream's and its Date: the longest
// wait of them, as it was sent, or "" if none is one. A date becomes seconds, because it was by the upstream's
// clock and the caller has another.
func CleanRetryAfter(values []string, now time.Time, date string) string {
	now = upstreamTime(date, now)
	best := Hint{}
	zero := ""
	for _, v := range values {
		v = strings.TrimSpace(v)
		wait := retryAfter(v, now)
		if wait == 0 {
			if strings.Trim(v, "0") == "" {
				zero = v
			}
			continue
		}
		if f, ok := decimal(v); !ok || f >= epochStart || f != math.Trunc(f) {
			v = seconds(wait) // the field holds whole seconds or a date, RFC 9110
		}
		best = best.longer(Hint{wait, v})
	}
	if best.Wait == 0 {
		return zero
	}
	return best.Raw
}

// buckets reads the resets of the limits that have nothing left: of OpenAI's x-ratelimit-reset-<dimension> and its
// likes the ones whose x-ratelimit-remaining-<dimension> is zero, the longest of them.
func buckets(h http.Header, now time.Time) (longest Hint) {
	for name, values := range h {
		lower := strings.ToLower(name)
		if !strings.Contains(lower, "reset") || !strings.Contains(lower, "limit") || len(values) == 0 ||
			strings.HasPrefix(lower, "anthropic-ratelimit-unified") {
			continue
		}
		remaining := h.Get(strings.Replace(lower, "reset", "remaining", 1))
		if lower == "x-ratelimit-reset-after" {
			remaining = h.Get("X-Ratelimit-Remaining")
		}
		if left := strings.TrimSpace(remaining); left != "" && strings.Trim(left, "0.") != "" {
			continue
		} else if left == "" && strings.Count(lower, "-") > 2 {
			continue // one of several limits, and nothing says that it is the one
		}
		for _, v := range values {
			longest = longest.longer(Hint{moment(strings.TrimSpace(v), now), clip(v)})
		}
	}
	return longest
}

// unified reads the windows of Anthropic's subscriptions that were rejected, in epoch seconds.
func unified(h http.Header, now time.Time) (longest Hint) {
	const prefix = "anthropic-ratelimit-unified-"
	for name, values := range h {
		lower := strings.ToLower(name)
		window, ok := strings.CutSuffix(strings.TrimPrefix(lower, prefix), "reset")
		if !ok || !strings.HasPrefix(lower, prefix) || len(values) == 0 {
			continue
		}
		if strings.EqualFold(h.Get(prefix+window+"status"), "rejected") {
			longest = longest.longer(Hint{moment(strings.TrimSpace(values[0]), now), clip(values[0])})
		}
	}
	return longest
}
