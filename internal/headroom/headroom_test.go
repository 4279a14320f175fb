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

package headroom

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func header(fields ...string) http.Header {
	h := make(http.Header)
	for i := 0; i < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	return h
}

// lines is a header as it is written in documentation.
func lines(text string) http.Header {
	h := make(http.Header)
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		h.Add(name, strings.TrimSpace(value))
	}
	return h
}

func in(d time.Duration) time.Time { return now.Add(d) }

// openAI is the header of an answer of gpt-4o, as it came.
const openAI = `
	Date: Wed, 01 Jul 2026 12:00:00 GMT
	Content-Type: application/json
	Transfer-Encoding: chunked
	Connection: keep-alive
	access-control-expose-headers: X-Request-ID
	openai-organization: user-x
	openai-processing-ms: 1531
	openai-version: 2020-10-01
	x-ratelimit-limit-requests: 500
	x-ratelimit-limit-tokens: 30000
	x-ratelimit-remaining-requests: 499
	x-ratelimit-remaining-tokens: 28713
	x-ratelimit-reset-requests: 120ms
	x-ratelimit-reset-tokens: 2.572s
	x-request-id: req_x
	strict-transport-security: max-age=31536000; includeSubDomains; preload
	CF-Cache-Status: DYNAMIC
	X-Content-Type-Options: nosniff
	Server: cloudflare
	CF-RAY: x-BRU
	alt-svc: h3=":443"; ma=86400`

const anthropic = `
	Date: Wed, 01 Jul 2026 12:00:01 GMT
	Content-Type: application/json
	anthropic-ratelimit-requests-limit: 50
	anthropic-ratelimit-requests-remaining: 49
	anthropic-ratelimit-requests-reset: 2026-07-01T12:00:02Z
	anthropic-ratelimit-tokens-limit: 38000
	anthropic-ratelimit-tokens-remaining: 38000
	anthropic-ratelimit-tokens-reset: 2026-07-01T12:00:01Z
	anthropic-ratelimit-input-tokens-limit: 30000
	anthropic-ratelimit-input-tokens-remaining: 0
	anthropic-ratelimit-input-tokens-reset: 2026-07-01T12:01:01Z
	anthropic-ratelimit-output-tokens-limit: 8000
	anthropic-ratelimit-output-tokens-remaining: 8000
	anthropic-ratelimit-output-tokens-reset: 2026-07-01T12:00:01Z
	request-id: req_x`

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name   string
		header string
		want   []Figure
	}{
		{"OpenAI", openAI, []Figure{
			{requests, 500, 499, in(120 * time.Millisecond), true, false},
			{tokens, 30000, 28713, in(2572 * time.Millisecond), true, false},
		}},
		{
			"OpenAI, a project with a limit", `
			x-ratelimit-limit-requests: 60
			x-ratelimit-limit-tokens: 150000
			x-ratelimit-remaining-requests: 59
			x-ratelimit-remaining-tokens: 149984
			x-ratelimit-reset-requests: 1s
			x-ratelimit-reset-tokens: 6m0s
			x-ratelimit-limit-project-tokens: 60000
			x-ratelimit-remaining-project-tokens: 57000
			x-ratelimit-reset-project-tokens: 3s`, []Figure{
				{requests, 60, 59, in(time.Second), true, false},
				{tokens, 150000, 149984, in(6 * time.Minute), true, false},
				{"project_tokens", 60000, 57000, in(3 * time.Second), true, false},
			},
		},
		{
			"OpenAI, a day", `
			x-ratelimit-limit-requests: 200
			x-ratelimit-remaining-requests: 197
			x-ratelimit-reset-requests: 16m17.764s
			x-ratelimit-limit-tokens: 1500000
			x-ratelimit-remaining-tokens: 43244
			x-ratelimit-reset-tokens: 23h18m29.144s`, []Figure{
				{requests, 200, 197, in(16*time.Minute + 17764*time.Millisecond), true, false},
				{tokens, 1500000, 43244, in(23*time.Hour + 18*time.Minute + 29144*time.Millisecond), true, false},
			},
		},
		{
			"Groq", `
			retry-after: 2
			x-ratelimit-limit-requests: 14400
			x-ratelimit-limit-tokens: 18000
			x-ratelimit-remaining-requests: 14370
			x-ratelimit-remaining-tokens: 17997
			x-ratelimit-reset-requests: 2m59.56s
			x-ratelimit-reset-tokens: 7.66s`, []Figure{
				{requests, 14400, 14370, in(179560 * time.Millisecond), true, false},
				{tokens, 18000, 17997, in(7660 * time.Millisecond), true, false},
			},
		},
		{
			"xAI says no reset", `
			x-ratelimit-limit-requests: 480
			x-ratelimit-limit-tokens: 2000000
			x-ratelimit-remaining-requests: 479
			x-ratelimit-remaining-tokens: 1999995`, []Figure{
				{requests, 480, 479, time.Time{}, true, false},
				{tokens, 2000000, 1999995, time.Time{}, true, false},
			},
		},
		// Told by the upstream's clock, which is a second ahead.
		{"Anthropic", anthropic, []Figure{
			{requests, 50, 49, in(time.Second), true, false},
			{tokens, 38000, 38000, time.Time{}, true, false},
			{"input_tokens", 30000, 0, in(time.Minute), true, false},
			{"output_tokens", 8000, 8000, time.Time{}, true, false},
		}},
		{
			"Anthropic's priority tier and fast mode", `
			anthropic-ratelimit-requests-limit: 50
			anthropic-ratelimit-requests-remaining: 49
			anthropic-priority-input-tokens-limit: 10000
			anthropic-priority-input-tokens-remaining: 0
			anthropic-priority-input-tokens-reset: 2026-07-01T12:00:20Z
			anthropic-fast-output-tokens-limit: 0
			anthropic-fast-output-tokens-remaining: 0`, []Figure{
				{requests, 50, 49, time.Time{}, true, false},
				{"priority_input_tokens", 10000, 0, in(20 * time.Second), true, true},
				{"fast_output_tokens", 0, 0, time.Time{}, true, true},
			},
		},
		{
			"Anthropic's subscriptions", `
			anthropic-ratelimit-unified-status: allowed
			anthropic-ratelimit-unified-representative-claim: five_hour
			anthropic-ratelimit-unified-5h-status: allowed
			anthropic-ratelimit-unified-5h-reset: 1782910800
			anthropic-ratelimit-unified-5h-utilization: 0.46
			anthropic-ratelimit-unified-7d-status: allowed
			anthropic-ratelimit-unified-7d-reset: 1783252800
			anthropic-ratelimit-unified-7d-utilization: 0.15
			anthropic-ratelimit-unified-7d_sonnet-utilization: 0.01
			anthropic-ratelimit-unified-overage-status: rejected`, []Figure{
				{"5h", 100, 54, in(time.Hour), false, true},
				{"7d", 100, 85, in(4 * 24 * time.Hour), false, true},
				{"7d_sonnet", 100, 99, time.Time{}, false, true},
			},
		},
		{
			"Anthropic's subscriptions, rejected", `
			anthropic-ratelimit-unified-status: rejected
			anthropic-ratelimit-unified-5h-status: allowed
			anthropic-ratelimit-unified-5h-reset: 1782910800
			anthropic-ratelimit-unified-5h-utilization: 0.31
			anthropic-ratelimit-unified-7d-status: rejected
			anthropic-ratelimit-unified-7d-reset: 1783252800
			anthropic-ratelimit-unified-7d-utilization: 1.0`, []Figure{
				{"5h", 100, 69, in(time.Hour), false, true},
				{"7d", 100, 0, in(4 * 24 * time.Hour), false, false},
			},
		},
		{
			"Anthropic's subscriptions, a full window that is paid for", `
			anthropic-ratelimit-unified-status: allowed
			anthropic-ratelimit-unified-overage-in-use: true
			anthropic-ratelimit-unified-5h-status: rejected
			anthropic-ratelimit-unified-5h-reset: 1782910800
			anthropic-ratelimit-unified-5h-utilization: 1.02`, []Figure{
				{"5h", 100, 0, in(time.Hour), false, true},
			},
		},
		{
			"Cerebras", `
			x-ratelimit-limit-requests-day: 1000000000
			x-ratelimit-limit-tokens-minute: 1000000000
			x-ratelimit-remaining-requests-day: 999997455
			x-ratelimit-remaining-tokens-minute: 999998298
			x-ratelimit-reset-requests-day: 33011.382867097855
			x-ratelimit-reset-tokens-minute: 11.382867097854614`, []Figure{
				{"requests_day", 1e9, 999997455, in(33011382867097), true, false},
				{"tokens_minute", 1e9, 999998298, in(11382867097), true, false},
			},
		},
		{
			"Mistral", `
			x-ratelimit-limit-req-minute: 60
			x-ratelimit-limit-tokens-minute: 50000
			x-ratelimit-limit-tokens-month: 4000000
			x-ratelimit-remaining-req-minute: 59
			x-ratelimit-remaining-tokens-minute: 47196
			x-ratelimit-remaining-tokens-month: 3950246
			x-ratelimit-tokens-query-cost: 2804`, []Figure{
				{"tokens_minute", 50000, 47196, time.Time{}, true, false},
				{"requests_minute", 60, 59, time.Time{}, false, false},
				{"tokens_month", 4000000, 3950246, time.Time{}, false, false},
			},
		},
		{
			"SambaNova", `
			x-ratelimit-limit-requests: 20
			x-ratelimit-remaining-requests: 19
			x-ratelimit-reset-requests: 1782907260
			x-ratelimit-limit-requests-day: 20
			x-ratelimit-remaining-requests-day: 19
			x-ratelimit-reset-requests-day: 1782993600`, []Figure{
				{requests, 20, 19, in(time.Minute), true, false},
				{"requests_day", 20, 19, in(24 * time.Hour), true, false},
			},
		},
		{
			"OpenRouter", `
			x-ratelimit-limit: 50
			x-ratelimit-remaining: 0
			x-ratelimit-reset: 1782907260000`, []Figure{{requests, 50, 0, in(time.Minute), false, false}},
		},
		{
			"Together", `
			x-ratelimit-limit: 10
			x-ratelimit-remaining: 9
			x-ratelimit-reset: 1
			x-tokenlimit-limit: 3000
			x-tokenlimit-remaining: 2800`, []Figure{{requests, 10, 9, in(time.Second), false, false}},
		},
		{
			"Fireworks", `
			x-ratelimit-limit-tokens-prompt: 60000
			x-ratelimit-limit-tokens-generated: 12000
			x-ratelimit-remaining-tokens-prompt: 59990
			x-ratelimit-remaining-tokens-generated: 11000
			x-ratelimit-over-limit: no`, []Figure{
				{"input_tokens", 60000, 59990, time.Time{}, false, true},
				{"output_tokens", 12000, 11000, time.Time{}, false, true},
			},
		},
		{
			"Azure", `
			x-ratelimit-limit-requests: 1
			x-ratelimit-remaining-requests: -1
			x-ratelimit-reset-requests: 105
			x-ratelimit-limit-tokens: 1000
			x-ratelimit-remaining-tokens: 995
			x-ratelimit-type: Tokens
			retry-after: 39`, []Figure{{tokens, 1000, 995, time.Time{}, true, false}},
		},
		{"Azure without limits", `
			x-ratelimit-limit-tokens: -1
			x-ratelimit-remaining-tokens: -1
			x-ratelimit-reset-tokens: 0`, nil},
		{
			"GitHub", `
			x-ratelimit-limit-requests: 20000
			x-ratelimit-remaining-requests: 19999
			x-ratelimit-limit-tokens: 2000000
			x-ratelimit-remaining-tokens: 1999962
			x-ratelimit-renewalperiod-requests: 60
			x-ratelimit-reset-requests: 3
			x-ratelimit-reset-tokens: 1`, []Figure{
				{requests, 20000, 19999, in(3 * time.Second), true, false},
				{tokens, 2000000, 1999962, in(time.Second), true, false},
			},
		},
		{
			"the draft, three fields", `
			ratelimit-limit: 100, 100;w=60
			ratelimit-remaining: 0
			ratelimit-reset: 30`, []Figure{{requests, 100, 0, in(30 * time.Second), false, false}},
		},
		{
			"the draft, one field", `ratelimit: "default";r=0;t=30`,
			[]Figure{{requests, -1, 0, in(30 * time.Second), false, false}},
		},
		{
			"the draft, several limits", `
			ratelimit: "a, \"b\"; r=9";r=50;pk=:QQ==:, "day" ; r=7 ; t=3600
			ratelimit: "hour";r=1`, []Figure{
				{requests, -1, 50, time.Time{}, false, false},
				{requests, -1, 7, in(time.Hour), false, false},
				{requests, -1, 1, time.Time{}, false, false},
			},
		},
		{
			"the draft of 2023", `ratelimit: limit=100, remaining=50, reset=5`,
			[]Figure{{requests, 100, 50, in(5 * time.Second), false, false}},
		},
		{"the draft, no figures", `ratelimit: "default";t=30, , "x`, nil},
		{"none", `content-type: application/json`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Read(lines(c.header), now, nil); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
		})
	}
}

func TestReadAppends(t *testing.T) {
	before := Figure{Name: "x"}
	got := Read(lines(openAI), now, []Figure{before})
	if len(got) != 3 || got[0] != before {
		t.Errorf("got %v", got)
	}
}

func TestReset(t *testing.T) {
	for _, c := range []struct {
		value string
		want  time.Duration
	}{
		{"1", time.Second},
		{"0.5", 500 * time.Millisecond},
		{"12ms", 12 * time.Millisecond},
		{"6m0s", 6 * time.Minute},
		{"1h2m3.5s", time.Hour + 2*time.Minute + 3500*time.Millisecond},
		{"24h6m34s", 24*time.Hour + 6*time.Minute + 34*time.Second},
		{"2764800", Longest},
		{"768h", Longest},
		{"1782907260", time.Minute},
		{"1782907260.5", time.Minute},
		{"1782907260000", time.Minute},
		{"2026-07-01T12:01:00Z", time.Minute},
		{"2026-07-01T14:01:00.25+02:00", time.Minute + 250*time.Millisecond},

		{"", 0},
		{"0", 0},
		{"0s", 0},
		{"-1", 0},
		{"-1s", 0},
		{"+1", 0},
		{"+1s", 0},
		{".5s", 0},
		{" 1", 0},
		{"1 s", 0},
		{"1d", 0},
		{"soon", 0},
		{"s", 0},
		{"NaN", 0},
		{"Inf", 0},
		{"1e3", 0},
		{"0x10", 0},
		{"1.2.3", 0},
		{"1,2", 0},
		{"2764801", 0},
		{"769h", 0},
		{"999999999", 0},
		{"1785672001", 0},          // in 32 days and a second
		{"1782907199", 0},          // passed
		{"1782907199999", 0},       // passed
		{"1782907260000000", 0},    // microseconds
		{"1782907260000000000", 0}, // nanoseconds
		{"99999999999999999999999999999999999999", 0},
		{"9999999999999999999999999h", 0},
		{"2026-07-01T11:59:59Z", 0},
		{"2027-07-01T12:00:00Z", 0},
		{"2026-07-01", 0},
		{"Wed, 01 Jul 2026 12:01:00 GMT", 0},
		{strings.Repeat("1m", 30), 0},
	} {
		h := header("X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", c.value)
		var want time.Time
		if c.want > 0 {
			want = in(c.want)
		}
		if got := Read(h, now, nil); len(got) != 1 || !got[0].Reset.Equal(want) {
			t.Errorf("%q: got %v, want %v", c.value, got, want)
		}
	}
}

func TestByTheUpstreamsClock(t *testing.T) {
	h := header("Date", "Wed, 01 Jul 2026 11:00:00 GMT",
		"X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "1782903630") // 11:00:30
	if got := Read(h, now, nil); len(got) != 1 || !got[0].Reset.Equal(in(30*time.Second)) {
		t.Errorf("got %v", got)
	}
	h.Set("Date", "today")
	if got := Read(h, now, nil); len(got) != 1 || !got[0].Reset.IsZero() {
		t.Errorf("passed by the clock here: got %v", got)
	}
}

func TestBadCounts(t *testing.T) {
	for _, v := range []string{"", "-1", "+1", "1.5", "0.0", "NaN", "many", " 1", "1 ", "1, 2", "0x1", "1e3", "9999999999999999999", strings.Repeat("9", 99)} {
		if got := Read(header("X-Ratelimit-Remaining", v), now, nil); len(got) != 0 {
			t.Errorf("remaining %q: got %v", v, got)
		}
		got := Read(header("X-Ratelimit-Remaining", "1", "X-Ratelimit-Limit", v), now, nil)
		limit := int64(-1)
		if v == "1, 2" {
			limit = 1 // followed by its policy
		}
		if len(got) != 1 || got[0].Limit != limit {
			t.Errorf("limit %q: got %v", v, got)
		}
	}
	twice := header("X-Ratelimit-Remaining", "0", "X-Ratelimit-Remaining", "5", "X-Ratelimit-Reset", "5")
	if got := Read(twice, now, nil); len(got) != 0 {
		t.Errorf("two values: got %v", got)
	}
	twice = header("X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "5", "X-Ratelimit-Reset", "6")
	if got := Read(twice, now, nil); len(got) != 1 || !got[0].Reset.IsZero() {
		t.Errorf("two resets: got %v", got)
	}
}

func TestSpent(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name    string
		figures []Figure
		want    string
		wait    time.Duration
	}{
		{"nothing told", nil, "", 0},
		{"some left", []Figure{{requests, 10, 1, in(day), false, false}, {tokens, 10, 1, in(day), true, false}}, "", 0},
		{"a window", []Figure{{requests, 50, 0, in(time.Minute), false, false}}, requests, time.Minute},
		{"a window of an unknown size", []Figure{{requests, -1, 0, in(time.Minute), false, false}}, requests, time.Minute},
		{"bit by bit", []Figure{{requests, 2000, 0, in(day), true, false}}, requests, time.Minute},
		{"all of it soon", []Figure{{"input_tokens", 30000, 0, in(20 * time.Second), true, false}}, "input_tokens", 20 * time.Second},
		{"bit by bit of an unknown limit", []Figure{{requests, -1, 0, in(time.Minute), true, false}}, requests, time.Minute},
		{"no reset", []Figure{{requests, 10, 0, time.Time{}, false, false}}, "", 0},
		{"reset has passed since", []Figure{{requests, 10, 0, now, false, false}}, "", 0},
		{"nothing allowed", []Figure{{requests, 0, 0, in(day), true, false}, {requests, 0, 0, in(day), false, false}}, "", 0},
		{"another way", []Figure{{"priority_input_tokens", 10, 0, in(day), true, true}}, "", 0},
		{"the latest", []Figure{
			{requests, 10, 0, in(10 * time.Second), true, false},
			{tokens, 10, 0, in(50 * time.Second), true, false},
			{"project_tokens", 10, 0, in(30 * time.Second), true, false},
			{"tokens_day", 10, 5, in(day), true, false},
		}, tokens, 50 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want time.Time
			if c.wait > 0 {
				want = in(c.wait)
			}
			if name, until := Spent(c.figures, now); name != c.want || !until.Equal(want) {
				t.Errorf("got %s %v, want %s %v", name, until, c.want, want)
			}
		})
	}
}

func TestFieldsAreCanonical(t *testing.T) {
	keys := []string{tokensMinute, requestsDay, unifiedStatus}
	for _, f := range slices.Concat(openAIFields[:], spanFields[:], anthropicFields[:], fireworksFields[:], loneFields[:]) {
		keys = append(keys, f.remaining, f.limit, f.reset)
		if f.remaining == "" {
			t.Errorf("%s has no field", f.name)
		}
	}
	for _, w := range windows {
		keys = append(keys, w.used, w.status, w.reset)
	}
	for _, key := range keys {
		if key != http.CanonicalHeaderKey(key) {
			t.Errorf("%q is never found, it is %q", key, http.CanonicalHeaderKey(key))
		}
	}
}

func TestTrusted(t *testing.T) {
	for _, vendor := range []string{"openai", "anthropic", "groq", "mistral", "openrouter"} {
		if !Trusted(vendor) || Doubt(vendor) != "" {
			t.Errorf("%s: %s", vendor, Doubt(vendor))
		}
	}
	for _, vendor := range []string{"azure", "github", "cerebras"} {
		if Trusted(vendor) || Doubt(vendor) == "" {
			t.Errorf("%s is trusted", vendor)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("28713", "30000", "2.572s", `"default";r=0;t=30`)
	f.Add("0", "100, 100;w=60", "1782907260000", "limit=100, remaining=50, reset=5")
	f.Add("0", "-1", "2026-07-01T12:01:00Z", `"a\";r=1`)
	f.Add("0.46", "1", "33011.382867097855", ";,;r=;t==")
	var keys []string
	for _, d := range slices.Concat(openAIFields[:], spanFields[:], anthropicFields[:], fireworksFields[:], loneFields[:]) {
		keys = append(keys, d.remaining, d.limit, d.reset)
	}
	for _, w := range windows {
		keys = append(keys, w.used, unifiedStatus, w.reset)
	}
	f.Fuzz(func(t *testing.T, remaining, limit, reset, structured string) {
		h := http.Header{"Ratelimit": {structured}}
		for i, key := range keys {
			h[key] = []string{[]string{remaining, limit, reset}[i%3]}
		}
		h["Date"] = []string{reset}
		figures := Read(h, now, nil)
		for _, f := range figures {
			if f.Remaining < 0 || f.Limit < -1 || f.Name == "" {
				t.Errorf("%+v", f)
			}
			if !f.Reset.IsZero() && (!f.Reset.After(now) || f.Reset.After(now.Add(Longest))) {
				t.Errorf("reset out of bounds: %+v", f)
			}
		}
		name, until := Spent(figures, now)
		if (name == "") != until.IsZero() || !until.IsZero() && (!until.After(now) || until.After(now.Add(Longest))) {
			t.Errorf("spent: %q %v", name, until)
		}
	})
}

func TestNoAllocations(t *testing.T) {
	var room [8]Figure
	for name, text := range map[string]string{"OpenAI": openAI, "Anthropic": anthropic, "none": "Content-Type: x"} {
		h := lines(text)
		if n := testing.AllocsPerRun(100, func() { Spent(Read(h, now, room[:0]), now) }); n > 0 {
			t.Errorf("%s: %v", name, n)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	nothing := make(http.Header)
	for key, values := range lines(openAI) {
		if !strings.HasPrefix(key, "X-Ratelimit-") {
			nothing[key] = values
		}
	}
	for _, c := range []struct {
		name   string
		header http.Header
	}{
		{"none", nothing},
		{"openai", lines(openAI)},
		{"anthropic", lines(anthropic)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var room [8]Figure
			b.ReportAllocs()
			for b.Loop() {
				Read(c.header, now, room[:0])
			}
		})
	}
}

func BenchmarkSpent(b *testing.B) {
	figures := Read(lines(anthropic), now, nil)
	b.ReportAllocs()
	for b.Loop() {
		Spent(figures, now)
	}
}
