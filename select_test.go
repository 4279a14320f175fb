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
	"testing"
)

// spread sends n requests and counts who answered.
func spread(s *server, a *upstream, n int, headers ...string) map[string]int {
	a.forget()
	for range n {
		s.post("/v1/chat/completions", chat("m"), headers...).want(200)
	}
	count := make(map[string]int)
	for _, c := range a.asked("") {
		count[c.key]++
	}
	return count
}

func TestSelect(t *testing.T) {
	const n = 300
	for _, tc := range []struct {
		policy string
		fits   func(map[string]int) bool
	}{
		{"first", func(c map[string]int) bool { return c["k1"] == n }},
		{"round_robin", func(c map[string]int) bool { return c["k1"] == n/3 && c["k2"] == n/3 && c["k3"] == n/3 }},
		{"random", func(c map[string]int) bool { return c["k1"] > n/6 && c["k2"] > n/6 && c["k3"] > n/6 }},
		{"least_in_flight", func(c map[string]int) bool { return c["k1"] > n/6 && c["k2"] > n/6 && c["k3"] > n/6 }},
		{"weighted_random", func(c map[string]int) bool { return c["k3"] > 2*c["k1"] && c["k3"] > 2*c["k2"] && c["k1"] > 0 }},
	} {
		t.Run(tc.policy, func(t *testing.T) {
			a := newUpstream(t)
			s := serve(t, fmt.Sprintf(`llm_failover %s {
				keys {
					k1 {env.SECRET_K1}
					k2 {env.SECRET_K2}
					k3 {env.SECRET_K3} {
						weight 8
					}
				}
				select %s
			}`, a.URL, tc.policy))
			if got := spread(s, a, n); !tc.fits(got) {
				t.Error(got)
			}
		})
	}
	t.Run("least_in_flight passes the busy by", func(t *testing.T) {
		free := make(chan struct{})
		a := newUpstream(t).on("k1", events(families[0].begin, families[0].text("x"), until(free), families[0].end), ok)
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+"select least_in_flight\n}")
		var o *opened
		for len(a.asked("k1")) == 0 { // a draw decides who is first
			o = s.open(s.client, &families[0])
			o.until("delta")
		}
		for range 20 {
			// An answer can be here while its call still counts.
			eventually(t, "k2 is idle", func() bool { return s.state("default.providers.default.keys.k2.in_flight") == "0" })
			if got := spread(s, a, 1); got["k2"] != 1 {
				t.Error(got)
			}
		}
		close(free)
	})
	t.Run("sticky", func(t *testing.T) {
		a := newUpstream(t)
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2", "k3")+"select sticky {http.request.header.X-Session}\n}")
		seen := make(map[string]bool)
		for i := range 12 {
			got := spread(s, a, 4, "X-Session", fmt.Sprint(i))
			if len(got) != 1 {
				t.Error("caller", i, got)
			}
			for key := range got {
				seen[key] = true
			}
		}
		if len(seen) < 2 {
			t.Error("all callers on", seen)
		}
		home := ""
		for key := range spread(s, a, 1, "X-Session", "0") {
			home = key
		}
		a.on(home, fails(401, "Incorrect API key provided"))
		a.forget()
		s.post("/v1/chat/completions", chat("m"), "X-Session", "0").want(200)
		if got := spread(s, a, 4, "X-Session", "0"); len(got) != 1 || got[home] > 0 {
			t.Error("after its home was rejected:", got)
		}
	})
}
