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
	"slices"
	"strings"
	"testing"
)

// TestHints: what has no effect is said when a config is loaded, and nothing of one that makes sense.
func TestHints(t *testing.T) {
	const two = "keys {\nk1 {env.SECRET_K1}\nk2 {env.SECRET_K2}\n}\n"
	for _, tc := range []struct {
		lines string
		want  []string
	}{
		{two, nil},
		{two + "retry {\nsame_key 1s 2s 4s\nmax_wait 5s\n}\ncircuit {\nramp 5s\n}\nlimits {\nmax_in_flight 3 queue 3 30s\n}\ntimeouts {\nheaders 5s\ndeadline 20s\n}", nil},
		{"keys {\nk1 {env.SECRET_K1}\nk2 {env.SECRET_K1}\n}", []string{"provider default: keys k1 and k2 have one secret: the second is of no use"}},
		{"models {\ngpt-*\n}\nkeys {\nk1 {env.SECRET_K1} {\nmodels gpt-4 claude-3\n}\n}", []string{`provider default: key k1 is for the model "claude-3", which the provider's models do not have`}},
		{"models {\n* small\nbig large\n}\n" + two, []string{`provider default: the model "big" is never looked at, since "*" stands before it`}},
		{two + "retry {\nmax_wait 2s\n}", []string{"retry: same_key 4s is longer than max_wait 2s, so it is never waited"}},
		{two + "retry {\nwindow 3s\n}", []string{"retry: same_key 4s is longer than the window 3s, so it is never waited"}},
		{two + "retry {\nbackoff 2m\nmax_wait 3m\n}", []string{"retry: backoff of 2m0s is longer than the window 1m0s, in which attempts may start"}},
		{two + "limits {\nmax_in_flight 3 queue 3 2m\n}", []string{"limits: the queue's wait of 2m0s is longer than the window 1m0s, in which attempts may start"}},
		{two + "timeouts {\nheaders 20s\ndeadline 20s\n}", []string{"timeouts: headers 20s is not below the deadline 20s, so a silent upstream leaves no time for another one"}},
		{"circuit {\nramp 5s\n}\nkeys {\nk1 {env.SECRET_K1}\n}", []string{"circuit: ramp is of no use with one key"}},
	} {
		serve(t, "llm_failover https://llm.example {\n"+tc.lines+"\n}")
		var got []string
		for _, line := range sink.ours("this setting has no effect") {
			got = append(got, line.Get("hint").String())
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n%s\nwant\n%s", tc.lines, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
}
