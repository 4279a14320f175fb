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

// Package headroom reads what an answer says is left of the limits of the key that it was asked with.
//
// Most vendors say it on every answer, good ones too, each in its own fields and units. What is not understood is
// left out, never guessed: a figure that is wrong takes a good key out of service.
//
// What the figures are about, by the vendors' documentation (those that are not listed here send none on good
// answers, or none at all):
//
//	anthropic   organisation, or workspace where it has limits of its own, and family of models; the
//	            "unified" ones the subscription
//	azure       deployment
//	cerebras    organisation and model
//	fireworks   account
//	github      none of the caller's, see doubts
//	groq        organisation and model
//	mistral     workspace and model
//	openai      organisation or project and model; project_tokens the project
//	sambanova   account and model
//	together    organisation and model
//	xai         team and model
package headroom

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// Figure is one limit, as an answer tells it.
type Figure struct {
	Name      string    // one of a fixed list, never from the wire: requests, tokens, input_tokens, requests_day …
	Limit     int64     // -1: not told
	Remaining int64     // in percent where Limit is 100 and Name a window of a subscription (5h, 7d …)
	Reset     time.Time // zero: not told

	// Refill: it comes back bit by bit, and Reset is when all of it is back, not when there is some. Else all of it
	// comes back at Reset.
	Refill bool
	// Soft: at zero there is another way, and requests are served all the same.
	Soft bool
}

// Longest is the longest time to a reset that is believed: no limit is for more than a month.
const Longest = 32 * 24 * time.Hour

// Read appends what h says to into. It costs next to nothing where it says nothing, and allocates nothing where
// into has room.
//
// Resets are told by now, the clock here; those that came as points in time were moved from the upstream's clock to
// it by the upstream's Date. All of them are after now, and not more than [Longest].
func Read(h http.Header, now time.Time, into []Figure) []Figure {
	r := reader{h: h, now: now, figures: into}
	openAI := r.has(openAIFields[0].remaining) || r.has(openAIFields[1].remaining)
	if openAI {
		r.rows(openAIFields[:])
	}
	if r.has(tokensMinute) || openAI && r.has(requestsDay) { // SambaNova has no tokens a minute
		r.rows(spanFields[:])
	}
	if r.has(anthropicFields[0].remaining) || r.has(anthropicFields[1].remaining) || r.has(anthropicFields[2].remaining) || r.has(anthropicFields[3].remaining) {
		r.rows(anthropicFields[:])
	}
	if status := r.value(unifiedStatus); status != "" {
		r.unified(status)
	}
	if r.has(fireworksFields[0].remaining) {
		r.rows(fireworksFields[:])
	}
	r.rows(loneFields[:])
	for i, v := range h["Ratelimit"] {
		if i == maxItems {
			break
		}
		r.structured(v)
	}
	return r.figures
}

// Spent says of what nothing is left, and until when: the latest reset of the figures that stand at zero, and the zero
// time where none does. A zero without a reset that is believed is no such figure, because nobody knows how long it
// holds.
//
// Where a limit comes back bit by bit Reset is when all of it is back, which would be a day for Groq and some of
// OpenAI's limits while the next request is seconds away: a 429 of Groq with no request left of 2000 a day said
// "reset 24h" and "retry-after 44", which is a two-thousandth of a day. Of such a limit there is taken to be some after
// a minute at the latest.
func Spent(figures []Figure, now time.Time) (name string, until time.Time) {
	for i := range figures {
		f := &figures[i]
		if f.Remaining > 0 || f.Soft || f.Limit == 0 || !f.Reset.After(now) {
			continue // with a limit of 0 nothing ever comes back: Mistral's keys without a plan
		}
		back := f.Reset
		if some := now.Add(refillTime); f.Refill && some.Before(back) {
			back = some
		}
		if back.After(until) {
			name, until = f.Name, back
		}
	}
	return name, until
}

// refillTime is the span of most limits that refill.
const refillTime = time.Minute

const (
	tokens   = "tokens"
	maxItems = 4 // lines of RateLimit, and limits in one line
)

type reader struct {
	h        http.Header
	now      time.Time
	upstream time.Time // the upstream's clock; zero: not looked at yet
	figures  []Figure
}

func (r *reader) has(key string) bool { return len(r.h[key]) > 0 }

// value returns the only value of a field. Of several nobody knows which one is meant.
func (r *reader) value(key string) string {
	if v := r.h[key]; len(v) == 1 {
		return v[0]
	}
	return ""
}

func (r *reader) rows(fields []field) {
	for i := range fields {
		r.row(&fields[i])
	}
}

func (r *reader) row(f *field) {
	if !r.has(f.remaining) {
		return
	}
	left, ok := count(r.value(f.remaining))
	if !ok {
		return
	}
	limit := int64(-1)
	if f.limit != "" {
		if n, ok := count(first(r.value(f.limit))); ok {
			limit = n
		}
	}
	var reset time.Time
	if f.reset != "" {
		reset = r.reset(r.value(f.reset))
	}
	r.figures = append(r.figures, Figure{f.name, limit, left, reset, f.refill, f.soft})
}

// unified reads the windows of Anthropic's subscriptions: how much of each is used, as a fraction, and a status.
// A full window that is not rejected goes on as paid usage (status "allowed", "overage-in-use"), so it is the
// status that counts, of the window and of all of them.
func (r *reader) unified(status string) {
	for i := range windows {
		w := &windows[i]
		used, told := decimal(r.value(w.used))
		rejected := r.value(w.status) == "rejected"
		if !told && !rejected || used > 2 { // a percentage, should they change their mind
			continue
		}
		left := int64(math.Round(100 * max(0, 1-used)))
		if rejected {
			left = 0
		}
		r.figures = append(r.figures, Figure{w.name, 100, left, r.reset(r.value(w.reset)), false,
			!rejected || status != "rejected"})
	}
}

// structured reads one line of the draft's RateLimit: a list of limits, "name";r=<remaining>;t=<seconds>, or, in the
// draft's older form, limit=…, remaining=…, reset=….
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
func (r *reader) structured(line string) {
	f := Figure{Name: requests, Limit: -1, Remaining: -1}
	items := 0
	end := func() {
		if f.Remaining >= 0 && items < maxItems {
			items++
			r.figures = append(r.figures, f)
		}
		f = Figure{Name: requests, Limit: -1, Remaining: -1}
	}
	old := strings.HasPrefix(line, "limit=") || strings.HasPrefix(line, "remaining=")
	for line != "" {
		part, sep, rest := cutItem(line)
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, ok := count(value)
		switch {
		case !ok:
		case name == "r" || old && name == "remaining":
			f.Remaining = n
		case name == "t" || old && name == "reset":
			f.Reset = r.after(float64(n))
		case old && name == "limit":
			f.Limit = n
		}
		if sep == ',' && !old {
			end()
		}
		line = rest
	}
	end()
}
