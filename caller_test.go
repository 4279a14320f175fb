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
		timeout, readTimeout string
		want                 time.Duration
	}{
		{"", "", 0},
		{"600", "", 10 * time.Minute},
		{"", "2.5", 2500 * time.Millisecond},
		{"600", "60", time.Minute},
		{"0", "", 0},
		{"-3", "", 0},
		{"NaN", "", 0},
		{"Inf", "", 0},
		{"1e300", "", 0},
		{"soon", "5", 5 * time.Second},
	} {
		if got := patience(http.Header{fieldTimeout: {tc.timeout}, fieldReadTimeout: {tc.readTimeout}}); got != tc.want {
			t.Errorf("%q and %q: %v, want %v", tc.timeout, tc.readTimeout, got, tc.want)
		}
	}
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
