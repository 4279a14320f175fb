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

package storm

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Upstream plays a scenario's providers. It is not safe for concurrent use.
type Upstream struct {
	scenario *Scenario
	place    map[Target][2]int // of the provider in the config, and of the key in its provider; from 1
	spent    map[spender]window
}

// Target is a key of a provider.
type Target struct{ Provider, Key string }

// spender is a key under a phase's limit: each limit counts for itself, its windows being its own.
type spender struct {
	*Phase
	Target
}

// window is how many calls a key has made in one span of its limit.
type window struct{ n, calls int64 }

// Outcome is what a call brings.
type Outcome struct {
	Delay  time.Duration
	Error  string // one of the Error constants; empty: an answer
	Status int
	Header http.Header
	Body   string // of a failure; a good answer's is up to who plays the provider
}

// Good reports whether it is a good answer.
func (o *Outcome) Good() bool { return o.Error == "" && o.Status == http.StatusOK }

// NewUpstream plays a scenario for these keys, in the order of their config.
func NewUpstream(s *Scenario, targets []Target) *Upstream {
	u := &Upstream{scenario: s, place: make(map[Target][2]int), spent: make(map[spender]window)}
	providers, keys := make(map[string]int), make(map[string]int)
	for _, t := range targets {
		if providers[t.Provider] == 0 {
			providers[t.Provider] = len(providers) + 1
		}
		keys[t.Provider]++
		u.place[t] = [2]int{providers[t.Provider], keys[t.Provider]}
	}
	return u
}

// Answer is what a call that begins at a time brings.
func (u *Upstream) Answer(t Target, at time.Duration) Outcome {
	for i := range u.scenario.Phases {
		if p := &u.scenario.Phases[i]; p.holds(at) && u.concerns(p, t) {
			return u.play(p, t, at)
		}
	}
	return Outcome{Delay: time.Duration(u.scenario.Latency), Status: http.StatusOK}
}

// fits reports whether a pattern of a phase means the name, or its place. A * stands for any part of a name.
func fits(pattern, name string, place int) bool {
	if pattern == "" || pattern == "#"+strconv.Itoa(place) {
		return true
	}
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if last == 0 {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, parts[0])
	for _, part := range parts[1:last] { // the first fit of each leaves most to the others
		var found bool
		_, name, found = strings.Cut(name, part)
		ok = ok && found
	}
	return ok && strings.HasSuffix(name, parts[last])
}

// Check says which phase concerns none of the keys, so that a misspelt name is not taken for an outage survived.
func (u *Upstream) Check() error {
	for i := range u.scenario.Phases {
		p := &u.scenario.Phases[i]
		if !slices.ContainsFunc(slices.Collect(maps.Keys(u.place)), func(t Target) bool { return u.concerns(p, t) }) {
			return fmt.Errorf("phase %d: no key fits provider %q, key %q", i+1, p.Provider, p.Key)
		}
	}
	return nil
}

func (u *Upstream) concerns(p *Phase, t Target) bool {
	return fits(p.Provider, t.Provider, u.place[t][0]) && fits(p.Key, t.Key, u.place[t][1])
}

func (u *Upstream) play(p *Phase, t Target, at time.Duration) Outcome {
	o := Outcome{Delay: time.Duration(p.Delay), Error: p.Error, Status: http.StatusOK, Header: make(http.Header)}
	if o.Delay == 0 {
		o.Delay = time.Duration(u.scenario.Latency)
	}
	if p.Status != 0 {
		o.Status, o.Body = p.Status, p.Body
		for name, value := range p.Headers {
			o.Header.Set(name, value)
		}
	}
	if l := p.Limit; l != nil {
		per := time.Duration(l.Per)
		by := spender{p, t}
		w := u.spent[by]
		if n := int64(at / per); n != w.n {
			w = window{n: n}
		}
		w.calls++
		u.spent[by] = w
		if w.calls > int64(l.Calls) {
			left := per - at%per
			o.Status = http.StatusTooManyRequests
			o.Header.Set("Retry-After", strconv.Itoa(int(math.Ceil(left.Seconds()))))
		}
	}
	if o.Status != http.StatusOK && o.Body == "" {
		o.Body = errorBody(o.Status)
	}
	if strings.HasPrefix(strings.TrimSpace(o.Body), "{") && o.Header.Get("Content-Type") == "" {
		o.Header.Set("Content-Type", "application/json")
	}
	return o
}

// errorBody is a failure as OpenAI words it.
func errorBody(status int) string {
	words := map[int][2]string{
		http.StatusUnauthorized:    {"Incorrect API key provided.", "invalid_api_key"},
		http.StatusPaymentRequired: {"You exceeded your current quota, please check your plan and billing details.", "insufficient_quota"},
		http.StatusNotFound:        {"The model does not exist or you do not have access to it.", "model_not_found"},
		http.StatusTooManyRequests: {"Rate limit reached.", "rate_limit_exceeded"},
	}
	w, known := words[status]
	if !known {
		w = [2]string{"The server had an error while processing your request.", "server_error"}
	}
	return fmt.Sprintf(`{"error":{"message":%q,"type":%q,"param":null,"code":%q}}`, w[0], w[1], w[1])
}
