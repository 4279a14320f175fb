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
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// answered checks what the caller got.
func (s *sim) answered(req *simRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, pol := &req.w, &req.pool.policy
	now := time.Now()
	if left, ok := req.leftAt(); ok {
		for _, c := range req.calls {
			if c.ended.IsZero() || c.ended.After(left) {
				s.fault(req, "the call to %s outlived its caller", c.key.name)
			}
		}
		return
	}
	if w.writes != 1 {
		s.fault(req, "%d answers", w.writes)
		return
	}
	if pol.deadline > 0 && w.began.After(req.arrived.Add(pol.deadline)) {
		s.fault(req, "an answer %v after arrival, with a deadline of %v", w.began.Sub(req.arrived), pol.deadline)
	}
	attempts := 0
	for _, c := range req.calls {
		if !c.resent {
			attempts++
		}
	}
	switch {
	case w.aborted:
		s.brokenOff(req)
	case w.status == http.StatusOK:
		if last := req.last(); last != nil && last.limit != nil && strings.Contains(w.content(), simFinishes[req.dialect]) && strings.HasPrefix(last.outcome.text(), w.content()) {
			last.class = "" // the caller has all of it but the marker
			return
		}
		if last := req.last(); last == nil || w.content() != last.outcome.text() || last.class != "" {
			s.fault(req, "answered %q", w.content())
		} else if !last.whole.IsZero() && now.Sub(last.whole) > time.Second {
			s.fault(req, "it goes on for %v after its end", now.Sub(last.whole))
		}
	case w.status < 400:
		s.fault(req, "status %d", w.status)
	default:
		s.failure(req, attempts, now)
	}
}

// simFinishes are what makes a stream complete, though its terminal marker may never come.
var simFinishes = map[dialect.Dialect]string{
	dialect.Chat: `"finish_reason":"stop"`, dialect.Responses: "response.completed", dialect.Messages: `"stop_reason":"end_turn"`, dialect.Gemini: `"finishReason":"STOP"`,
}

// failure checks an answer that tells of a failure.
func (s *sim) failure(req *simRequest, attempts int, now time.Time) {
	w := &req.w
	if w.header.Get("Location") != "" {
		s.fault(req, "a Location is shown")
	}
	wait, err := strconv.Atoi(w.header.Get("Retry-After"))
	switch {
	case attempts > 0:
		if w.header.Get("X-Should-Retry") != "false" {
			s.fault(req, "it does not say that retries are of no use")
		}
	case w.status == http.StatusNotFound:
	case req.pool.policy.gate.inside > 0 && strings.Contains(w.body.String(), errQueueFull.Error()):
	case err != nil || wait < 1:
		s.fault(req, "refused with Retry-After %q", w.header.Get("Retry-After"))
	case w.status == http.StatusGatewayTimeout && req.pool.policy.gate.inside > 0: // its time went by in the queue
	default:
		for _, k := range req.pool.credentials {
			if !k.serves(req.dialect, req.model) {
				continue
			}
			if why, _ := s.obstacle(k, k.provider.sentModel(req.model), nil); why == "" {
				s.fault(req, "refused although %s is free: %s", k.name, w.body.String())
			}
		}
	}
	if w.status == http.StatusUnauthorized {
		s.fault(req, "the upstream's 401 is shown")
	}
	for _, c := range req.calls {
		if c.outcome.status == w.status && c.outcome.text() == w.body.String() {
			return
		}
	}
	if why := simMisworded(req.dialect, w.body.Bytes()); why != "" {
		s.fault(req, "%s: %s", why, w.body.String())
	}
}

// simMisworded says why a body is no error of its dialect.
func simMisworded(d dialect.Dialect, body []byte) string {
	var e struct {
		Type  string
		Error struct {
			Type, Message, Status string
			Code                  any
		}
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return err.Error()
	}
	switch {
	case e.Error.Message == "":
		return "no message"
	case d == dialect.Messages && (e.Type != "error" || e.Error.Type == ""):
		return "no error of messages"
	}
	return ""
}

// brokenOff checks an answer that was cut after its first content.
func (s *sim) brokenOff(req *simRequest) {
	last, got := req.last(), req.w.content()
	if req.w.alive && strings.HasPrefix(got, "data: {\"error") || strings.HasPrefix(got, "event: error\n") || strings.HasPrefix(got, "data: {\"type\":\"error\"") {
		return // nothing but the failure
	}
	if last == nil || last.class == "" {
		s.fault(req, "broken off without a reason")
	}
	text := last.outcome.text()
	common := 0
	for common < min(len(got), len(text)) && got[common] == text[common] {
		common++
	}
	if !req.streams {
		return
	}
	ending := simStreams[req.dialect].ending
	switch tail := got[common:]; {
	case strings.Contains(got, ending[strings.LastIndex(strings.TrimSpace(ending), "\n")+1:]):
		s.fault(req, "broken off with an ending: %q", got)
	case !strings.Contains(got, `"error"`):
		s.fault(req, "broken off without an error event: %q", got)
	case tail != "" && !strings.HasPrefix(tail, "data: ") && !strings.HasPrefix(tail, "event: ") && !bytes.Contains([]byte(got), []byte("\n\ndata: {\"")) && !strings.Contains(got, "\n\nevent: error\n"):
		s.fault(req, "more than an error event after %q: %q", got[:common], tail)
	}
}

// over checks what must be left when all is over.
func (s *sim) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.benchesExplained(s.pool)
	for _, k := range s.pool.credentials {
		attempts, least, most := 0, 0, 0
		for _, c := range s.calls {
			if c.key.name != k.name {
				continue
			}
			if !c.resent {
				attempts++
			}
			if v := (Verdict{Class: c.class, Scope: c.scope}); v.Failed() && v.charged() {
				most++
				if c.limit == nil || c.limit.limit != limitDeadline {
					least++
				}
			}
			if c.ended.IsZero() {
				s.fault(c.request, "a call to %s was never ended", k.name)
			}
		}
		f := k.facts
		if n := f.inFlight.Load(); n != 0 {
			s.fault(nil, "%s: %d in flight", k.name, n)
		}
		if n := int(f.attempts.Load()); n != attempts {
			s.fault(nil, "%s: %d attempts counted instead of %d", k.name, n, attempts)
		}
		if n := int(f.failures.Load()); n < least || n > most {
			s.fault(nil, "%s: %d failures counted instead of %d", k.name, n, most)
		}
		if f.circuit.failures > most {
			s.fault(nil, "%s: %d faults in a row of %d", k.name, f.circuit.failures, most)
		}
		if f.circuit.probe != nil || f.rejected.probe != nil || k.account.facts.look().probe != nil || k.provider.facts.look().probe != nil {
			s.fault(nil, "%s: a probe was not handed back", k.name)
		}
	}
}

// recovers checks that a day later nothing stands in any key's way, and that all serve again.
func (s *sim) recovers() {
	advance(24 * time.Hour)
	setDisabled(s.pool.credentials, false)
	s.well = true
	for _, k := range s.pool.credentials {
		if why, _ := s.obstacle(k, "", nil); why != "" {
			s.fault(nil, "a day later %s is out: %s", k.name, why)
		}
		n := len(s.requests)
		req := s.request(n)
		req.arrives, req.leaves = 0, 0
		s.requests = append(s.requests, req)
		s.ask(req)
		if len(req.calls) != 1 && req.w.status != http.StatusNotFound || len(req.calls) == 1 && (req.w.status != http.StatusOK || req.w.aborted) {
			s.fault(req, "a day later: %d calls, %d %s", len(req.calls), req.w.status, req.w.body.String())
		}
	}
}

// budgets checks that charged repeats to a provider stayed within what its budget can have held.
func (s *sim) budgets() {
	rate := s.pool.policy.budget
	most, draws := map[string]float64{}, map[string]int{}
	for _, p := range s.pool.providers {
		most[p.name] = rate.capacity() + rate.perSecond*time.Since(s.begun).Seconds()
	}
	for _, req := range s.requests {
		var last *simCall
		for _, c := range req.calls {
			name := c.key.provider.name
			if c.class == "" {
				most[name] += rate.share
			}
			if last != nil && !last.resent && last.key.provider == c.key.provider && (last.key == c.key || simCharges(last, c)) {
				draws[name]++
			}
			last = c
		}
	}
	for name, n := range draws {
		if float64(n) > most[name] {
			s.fault(nil, "%d charged repeats to %s, with a budget of %v", n, name, most[name])
		}
	}
}
