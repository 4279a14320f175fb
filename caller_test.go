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
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestIsRetry(t *testing.T) {
	for value, want := range map[string]bool{"": false, "0": false, "1": true, "2": true, "-1": false, "many": false} {
		if got := isRetry(http.Header{fieldRetryCount: {value}}); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}

func TestPatience(t *testing.T) {
	for _, tc := range []struct {
		timeout, readTimeout, own string
		want                      time.Duration
	}{
		{"", "", "", 0},
		{"600", "", "", 10 * time.Minute},
		{"", "2.5", "", 2500 * time.Millisecond},
		{"600", "60", "", time.Minute},
		{"0", "", "", 0},
		{"-3", "", "", 0},
		{"NaN", "", "", 0},
		{"Inf", "", "", 0},
		{"1e300", "", "", 0},
		{"86400", "", "", 0},
		{"soon", "5", "", 5 * time.Second},
		{"600", "", "30", 30 * time.Second},
		{"5", "", "30", 5 * time.Second},
		{"", "", "1500ms", 1500 * time.Millisecond},
		{"", "", "-1s", 0},
		{"", "", "48h", 0},
	} {
		h := http.Header{fieldTimeout: {tc.timeout}, fieldReadTimeout: {tc.readTimeout}, "X-Deadline": {tc.own}}
		if got := patience(h, "X-Deadline"); got != tc.want {
			t.Errorf("%q, %q and %q: %v, want %v", tc.timeout, tc.readTimeout, tc.own, got, tc.want)
		}
	}
}

// TestSeenKeys: a key is known the second time, and so many others do not make it grow.
func TestSeenKeys(t *testing.T) {
	var s seenKeys
	for range 2 {
		if s.again("") {
			t.Error("no key was taken for one")
		}
	}
	if s.table.Load() != nil {
		t.Error("it takes room before there is a key")
	}
	for i, key := range []string{"a", "a", "a", "b"} {
		if got, want := s.again(key), i == 1 || i == 2; got != want {
			t.Errorf("key %d: %v, want %v", i, got, want)
		}
	}
	known := 0
	for i := range 100 * seenPlaces {
		if s.again(strconv.Itoa(i)) {
			known++
		}
	}
	if known > 0 {
		t.Errorf("%d of %d new keys were taken for repeated ones", known, 100*seenPlaces)
	}
}

// TestIdempotencyKey: one name for all attempts at a provider, another at each provider, and the caller's own is kept.
func TestIdempotencyKey(t *testing.T) {
	a := newUpstream(t).on("k1", fails(500, "oops")).on("k2", fails(500, "oops"))
	b := newUpstream(t)
	s := serve(t, `llm_failover {
		provider A `+a.URL+" {\n"+keysOf("k1", "k2")+`}
		provider B `+b.URL+" {\n"+keysOf("k3")+`}
		retry {
			backoff 1ms
			max_retries 3
		}
		circuit {
			threshold 1000
		}
	}`)
	names := func(headers ...string) (of []string) {
		a.forget()
		b.forget()
		s.post("/v1/chat/completions", chat("m"), headers...).want(200)
		for _, c := range append(a.asked(""), b.asked("")...) {
			of = append(of, strings.Join(c.header[fieldIdempotencyKey], ","))
		}
		if len(of) != 3 {
			t.Fatalf("%d calls", len(of))
		}
		return of
	}
	first, second := names(), names()
	if first[0] == "" || first[0] != first[1] || first[2] == "" || first[2] == first[0] || second[0] == first[0] {
		t.Errorf("%q and then %q", first, second)
	}
	if got := names(fieldIdempotencyKey, "mine"); !slices.Equal(got, []string{"mine", "mine", "mine"}) {
		t.Errorf("the caller's own became %q", got)
	}
	a.forget()
	s.do(s.client, s.request(http.MethodGet, "/v1/models", nil))
	if got := a.asked("")[0].header[fieldIdempotencyKey]; got != nil {
		t.Errorf("a GET got %q", got)
	}
}

// TestRepeatedIdempotencyKey: who sends a request again under its old name does the waiting itself.
func TestRepeatedIdempotencyKey(t *testing.T) {
	a := newUpstream(t).on("k1", limited())
	s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+`
		retry {
			same_key 1ms 1ms
		}
		circuit {
			threshold 1000
		}
		halt {
			rate_limit 1ms
		}
	}`)
	for i, want := range []int{3, 1} {
		a.forget()
		s.post("/v1/chat/completions", chat("m"), fieldIdempotencyKey, "once").want(429)
		if got := len(a.asked("k1")); got != want {
			t.Errorf("try %d: %d calls, want %d", i+1, got, want)
		}
		eventually(t, "the halt is over", func() bool { return s.state("default.providers.default.status") == "available" })
	}
}

// TestDeadlineHeader: a field of the config's own limits a request like a deadline, and stays here.
func TestDeadlineHeader(t *testing.T) {
	a := newUpstream(t).on("k1", ok, just(hang{}))
	s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+`
		retry {
			min_attempt 1ms
		}
		timeouts {
			deadline_header X-Patience
		}
	}`)
	s.post("/v1/chat/completions", chat("m"), "X-Patience", "20").want(200)
	if got := a.asked("k1")[0].header.Get("X-Patience"); got != "" {
		t.Errorf("it went upstream: %q", got)
	}
	s.post("/v1/chat/completions", chat("m"), "X-Patience", "300ms").want(504).wantJSON("error.code", "deadline")
}

// TestCallerRetriesAreNotWaitedFor: a caller that tries again waits by itself.
func TestCallerRetriesAreNotWaitedFor(t *testing.T) {
	pol := newPolicy(&Handler{Providers: []*Provider{{Keys: []*Key{{}, {}}}}})
	limited := Verdict{Class: RateLimit, Scope: ScopeKey}
	for _, tc := range []struct {
		what  string
		again bool
		free  where
		want  verb
	}{
		{"the first time it waits", false, 0, stay},
		{"a retry does not", true, 0, stop},
		{"but it moves on", true, otherAccount, move},
	} {
		p := progress{attempts: 1, remaining: noDeadline, again: tc.again}
		if got := decide(limited, p, options{self: true, free: tc.free}, &pol, 0); got.do != tc.want {
			t.Errorf("%s: %v, want %v", tc.what, got.do, tc.want)
		}
	}
}

// TestCallerInAHurry: who waits hardly longer than min_attempt, or less, is asked for once, and neither waited for nor
// queued in vain.
func TestCallerInAHurry(t *testing.T) {
	a := newUpstream(t).on("k1", limited())
	s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+"limits {\nmax_in_flight 1 queue 5 20s\n}\n}")
	for _, patience := range []string{"0.2", "0.9", "1"} {
		a.forget()
		if got := s.post("/v1/chat/completions", chat("m"), fieldTimeout, patience).want(429); got.took > 900*time.Millisecond {
			t.Errorf("%s: took %v", patience, got.took)
		}
		if n := len(a.asked("k1")); n != 1 {
			t.Errorf("%s: %d calls", patience, n)
		}
		s.ask(http.MethodPost, adminPath+"/default/reset").want(200)
	}
	a.on("k1", ok)
	s.post("/v1/chat/completions", chat("m"), fieldTimeout, "0.9").want(200)
}
