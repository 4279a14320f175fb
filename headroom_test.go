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
	"net/http"
	"strconv"
	"testing"
	"time"
)

// TestHeadroom: a key of whose limits nothing is left is passed by until the reset, before it earns a 429; its account's
// other keys with it, other models not, and it is asked all the same if no other key is free.
func TestHeadroom(t *testing.T) {
	spent := func(reset string) reply {
		return says(200, `{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":"hi"}}]}`,
			"X-Ratelimit-Limit-Requests", "60", "X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", reset,
			"X-Ratelimit-Limit-Tokens", "1000", "X-Ratelimit-Remaining-Tokens", "900", "X-Ratelimit-Reset-Tokens", "20s")
	}
	left := says(200, `{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":"hi"}}]}`,
		"X-Ratelimit-Remaining-Requests", "7", "X-Ratelimit-Reset-Requests", "1h")
	const path = "/v1/chat/completions"

	for _, tc := range []struct {
		what, lines string
		models      [4]string // of the requests
		want        string    // the keys that they go to
	}{
		{"passed by", "", [4]string{"m", "m", "m", "m"}, "k1 k2 k2 k2"},
		{"not for another model", "", [4]string{"m", "other", "m", "m"}, "k1 k1 k2 k2"},
		{"with its account", "account shared", [4]string{"m", "m", "m", "m"}, "k1 k3 k3 k3"},
		{"not where figures are not believed", "headroom off", [4]string{"m", "m", "m", "m"}, "k1 k1 k1 k1"},
		{"not where they are known to be wrong", "vendor azure", [4]string{"m", "m", "m", "m"}, "k1 k1 k1 k1"},
		{"unless the operator knows better", "vendor azure\nheadroom on", [4]string{"m", "m", "m", "m"}, "k1 k2 k2 k2"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			a := newUpstream(t).on("k1", spent("1h"))
			s := serve(t, "llm_failover {\nprovider a "+a.URL+" {\n"+tc.lines+"\n"+keysOf("k1", "k2")+"}\n"+
				"provider b "+a.URL+" {\n"+keysOf("k3")+"}\n}")
			for _, model := range tc.models {
				s.post(path, chat(model)).want(200)
			}
			a.wantOrder(tc.want)
		})
	}

	t.Run("asked if no other is free", func(t *testing.T) {
		a := newUpstream(t).on("k1", spent("1h"))
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+"}")
		for range 3 {
			s.post(path, chat("m")).want(200)
		}
	})
	t.Run("asked after healthy keys in any place", func(t *testing.T) {
		a, b := newUpstream(t).on("k1", fails(504, "too slow")), newUpstream(t).on("k3", spent("1h"))
		s := serve(t, "llm_failover {\nprovider a "+a.URL+" {\n"+keysOf("k1", "k2")+"}\nprovider b "+b.URL+" {\n"+keysOf("k3")+"}\nretry {\nbackoff 1ms\n}\n}")
		s.ask(http.MethodPost, adminPath+"/default/a/k1/disable").want(200)
		s.ask(http.MethodPost, adminPath+"/default/a/k2/disable").want(200)
		s.post(path, chat("m")).want(200)
		s.ask(http.MethodPost, adminPath+"/default/a/k1/enable").want(200)
		s.ask(http.MethodPost, adminPath+"/default/a/k2/enable").want(200)
		s.post(path, chat("m")).want(200, "from-k2")
		b.wantOrder("k3")
	})
	t.Run("back at its reset", func(t *testing.T) {
		a := newUpstream(t).on("k1", spent("300ms"))
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+"}")
		s.post(path, chat("m")).want(200)
		s.post(path, chat("m")).want(200)
		eventually(t, "the reset", func() bool { return s.state("default.providers.default.keys.k1.headroom.requests.reset") == "" })
		s.post(path, chat("m")).want(200)
		a.wantOrder("k1 k2 k1")
	})
	t.Run("and back as soon as there is some", func(t *testing.T) {
		a := newUpstream(t).on("k1", spent("1h"), left)
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+"}")
		s.post(path, chat("m")).want(200)
		s.ask(http.MethodPost, adminPath+"/default/default/k2/disable").want(200)
		s.post(path, chat("m")).want(200) // k1, as it is the only one
		s.ask(http.MethodPost, adminPath+"/default/default/k2/enable").want(200)
		s.post(path, chat("m")).want(200)
		a.wantOrder("k1 k1 k1")
	})
	t.Run("shown, and forgotten by a reset", func(t *testing.T) {
		a := newUpstream(t).on("k1", spent("1h"))
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+"}")
		const key = "default.keys.k1."
		if got := s.state("default.providers." + key + "headroom"); got != "" {
			t.Errorf("before the first answer: %s", got)
		}
		s.post(path, chat("m")).want(200)
		s.wantState(key+"headroom.requests.remaining", "0", key+"headroom.requests.limit", "60",
			key+"headroom.tokens.remaining", "900", key+"status", "available")
		if at, err := time.Parse(time.RFC3339, s.state("default.providers."+key+"headroom.requests.reset")); err != nil || time.Until(at) < 59*time.Minute {
			t.Errorf("reset %v, %v", at, err)
		}
		s.ask(http.MethodPost, adminPath+"/default/reset").want(200)
		if got := s.state("default.providers." + key + "headroom"); got != "" {
			t.Errorf("after a reset: %s", got)
		}
		s.post(path, chat("m")).want(200)
		a.wantOrder("k1 k1")
	})
}

// TestSpentIsBounded: callers choose the names of models.
func TestSpentIsBounded(t *testing.T) {
	var s spentFacts
	now := time.Now()
	for i := range 10 * maxModels {
		s.note(strconv.Itoa(i), now.Add(time.Hour), now)
	}
	if n := len(s.until); n != maxModels {
		t.Errorf("%d models", n)
	}
	s.note(fmt.Sprintf("%0*d", maxModelName+1, 1), now.Add(time.Hour), now)
	if n := len(s.until); n != maxModels {
		t.Errorf("%d models with a long name", n)
	}
	later := now.Add(2 * time.Hour)
	s.note("new", later.Add(time.Hour), later)
	if len(s.until) != 1 || !s.is("new", later) || s.is("1", later) {
		t.Errorf("those that are over stay: %d", len(s.until))
	}
	s.note("new", time.Time{}, later)
	if s.is("new", later) || s.any.Load() {
		t.Error("it stays though there is some again")
	}
}
