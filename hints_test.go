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
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// TestHints: what has no effect is said when a config is loaded, and nothing of one that makes sense.
func TestHints(t *testing.T) {
	const two = "keys {\nk1 {env.SECRET_K1}\nk2 {env.SECRET_K2}\n}\n"
	same := func(models ...string) string { // keys with one secret
		lines := "keys {\n"
		for i, m := range models {
			lines += fmt.Sprintf("k%d {env.SECRET_K1} {\n%s\n}\n", i+1, m)
		}
		return lines + "}\n"
	}
	for _, tc := range []struct {
		lines string
		want  []string
	}{
		{two, nil},
		{two + "retry {\nsame_key 1s 2s 4s\nmax_wait 5s\n}\ncircuit {\nramp 5s\n}\nlimits {\nmax_in_flight 3 queue 3 30s\n}\ntimeouts {\nheaders 5s\ndeadline 20s\n}", nil},

		{same("", ""), []string{"provider default: keys k1 and k2 have one secret: the second is of no use"}},
		{same("", "", ""), []string{"provider default: keys k1 and k2 have one secret: the second is of no use", "provider default: keys k1 and k3 have one secret: the second is of no use"}},
		{same("models a", "models b"), nil},
		{same("models a", ""), nil},
		{same("models a", "models a b"), nil},
		{same("", "models a"), []string{"provider default: keys k1 and k2 have one secret: the second is of no use"}},
		{same("models g*", "models gpt-*"), []string{"provider default: keys k1 and k2 have one secret: the second is of no use"}},
		{"models {\ngpt-*\n}\nkeys {\nk1 {env.SECRET_K1} {\nmodels gpt-4 *-mini claude-3\n}\n}", []string{`provider default: key k1 is for the model "claude-3", which the provider's models do not have`}},
		{"models {\n* small\nbig large\n}\n" + two, []string{`provider default: the model "big" is never looked at, since "*" stands before it`}},
		{"keys {\nk1 {env.SECRET_K1} {\nweight 3\n}\nk2 {env.SECRET_K2}\n}", []string{"weight is of no use without select weighted_random"}},
		{"select weighted_random\nkeys {\nk1 {env.SECRET_K1} {\nweight 3\n}\nk2 {env.SECRET_K2}\n}", nil},

		// of defaults that another setting overrules nothing is said
		{two + "retry {\nmax_wait 1ms\n}", nil},
		{two + "retry {\nwindow 3s\n}", nil},
		{two + "retry {\nsame_key 4s 8s 9s\n}", []string{"retry: same_key 8s 9s: longer than max_wait 5s, so never waited"}},
		{two + "retry {\nsame_key 4s\nwindow 3s\n}", []string{"retry: same_key 4s: longer than the window 3s, so never waited"}},
		// a queue is for waiting, where a key is limited
		{two + "retry {\nsame_key 8s\n}\nlimits {\nmax_in_flight 3 queue 3 20s\n}", nil},
		{two + "retry {\nsame_key 8s 30s\n}\nlimits {\nmax_in_flight 3 queue 3 20s\n}", []string{"retry: same_key 30s: longer than the queue's wait 20s, so never waited"}},
		{two + "retry {\nsame_key 8s\nsame_key_on model_unavailable\n}\nlimits {\nmax_in_flight 3 queue 3 20s\n}", []string{"retry: same_key 8s: longer than max_wait 5s, so never waited"}},
		{two + "retry {\nsame_key off\nsame_key_on rate_limit\n}", []string{"retry: same_key_on is of no use with same_key off"}},
		{two + "retry {\non timeout bad_request content_policy\n}", []string{"retry: on bad_request: such failures are never tried again", "retry: on content_policy: such failures are never tried again"}},
		{two + "retry {\nsame_key_on rate_limit context_overflow unknown\n}", []string{"retry: same_key_on context_overflow: such failures are never tried again", "retry: same_key_on unknown: such failures are never tried again"}},
		{two + "retry {\nbackoff 2m\n}", []string{"retry: backoff 2m0s is cut to max_wait 5s"}},
		{two + "retry {\nbackoff 500ms 8s\n}", nil}, // the default
		{two + "retry {\nbackoff 4s\nwindow 3s\n}", []string{"retry: backoff 4s is longer than the window 3s, so no retry that costs a wait is made"}},
		{two + "retry {\nmax_wait 3m\n}", []string{"retry: max_wait 3m0s is longer than the window 1m0s, in which attempts may start"}},

		{two + "limits {\nmax_in_flight 3 queue 3 2m\n}", []string{"limits: the queue's wait of 2m0s is longer than the window 1m0s, in which attempts may start"}},
		{two + "timeouts {\nheaders 20s\ndeadline 20s\n}", []string{"timeouts: headers 20s is not below the deadline 20s, so a silent upstream leaves no time for another one"}},
		{two + "timeouts {\nfirst_token 30s\ndeadline 20s\n}", []string{"timeouts: first_token 30s is not below the deadline 20s, so a silent upstream leaves no time for another one"}},
		{two + "timeouts {\ndeadline 20s\n}", nil},
		{"circuit {\nramp 5s\n}\nkeys {\nk1 {env.SECRET_K1}\n}", []string{"circuit: ramp is of no use with one key"}},
		{two + "circuit {\nramp 5s\nhalf_open reset\n}", []string{"circuit: with half_open reset no success ends an open circuit, so no ramp follows it"}},
		{two + "circuit {\non timeout unknown\n}", []string{"circuit: on unknown: such failures are nobody's fault and never count"}},
	} {
		t.Run(tc.lines, func(t *testing.T) {
			h := new(Handler)
			if err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser("llm_failover https://llm.example {\n" + tc.lines + "\n}")); err != nil {
				t.Fatal(err)
			}
			if got := hintsOf(t, h); !slices.Equal(got, tc.want) {
				t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// hintsOf builds a handler's pool as Provision does, which would log the hints.
func hintsOf(t *testing.T, h *Handler) []string {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	h.Pool = "hints"
	for _, p := range h.Providers {
		p.Name = cmp.Or(p.Name, defaultName)
	}
	b := &builder{handler: h, secret: resolve}
	if err := errors.Join(b.build(ctx), giveBack(b.held)); err != nil {
		t.Fatal(err)
	}
	return h.hints(b.pool)
}

func TestHintsAreLogged(t *testing.T) {
	serve(t, "llm_failover https://llm.example {\n"+keysOf("k1")+"circuit {\nramp 5s\n}\n}")
	said := sink.ours("this setting has no effect")
	if len(said) != 1 || said[0].Get("pool").String() != "default" || said[0].Get("hint").String() != "circuit: ramp is of no use with one key" {
		t.Error(said)
	}
}

// TestExamplesYieldNoHint: what users are shown makes sense.
func TestExamplesYieldNoHint(t *testing.T) {
	files, err := filepath.Glob("examples/*/Caddyfile")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			adapted, err := adapt(t, readDoc(t, file))
			if err != nil {
				t.Fatal(err)
			}
			found := handlersIn(t, gjson.ParseBytes(adapted))
			if len(found) == 0 {
				t.Error("no llm_failover")
			}
			for _, h := range found {
				for _, p := range h.Providers {
					for _, k := range p.Keys {
						k.Secret = "secret-of-" + p.Name + "-" + k.Name
					}
				}
				if hints := hintsOf(t, h); hints != nil {
					t.Error(strings.Join(hints, "\n"))
				}
			}
		})
	}
}

// handlersIn finds our handlers in a config.
func handlersIn(t *testing.T, config gjson.Result) (found []*Handler) {
	t.Helper()
	if config.Get("handler").String() == "llm_failover" {
		h := new(Handler)
		if err := json.Unmarshal([]byte(config.Raw), h); err != nil {
			t.Fatal(err)
		}
		return []*Handler{h}
	}
	if config.IsObject() || config.IsArray() {
		config.ForEach(func(_, inside gjson.Result) bool {
			found = append(found, handlersIn(t, inside)...)
			return true
		})
	}
	return found
}

func TestOverlap(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"big", "big", true},
		{"big", "small", false},
		{"big", "b*", true},
		{"big", "b*a", false},
		{"*", "*", true},
		{"*-mini", "gpt-*", true},
		{"gpt-*", "gpt-4*", true},
		{"gpt-*", "claude-*", false},
		{"gpt-*-mini", "*-small", false},
		{"a*b", "b*a", false},
		{"a*b*c", "ax*yc", true},
		{"*x*", "*y*", true},
	} {
		if overlap(tc.a, tc.b) != tc.want || overlap(tc.b, tc.a) != tc.want {
			t.Errorf("%s and %s: want %t", tc.a, tc.b, tc.want)
		}
	}
}
