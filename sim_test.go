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
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// TestSimulation runs random scripts of upstream behaviour in virtual time, through the real loop, and checks after
// each that DESIGN.md section 5 held. LLMFAILOVER_SCRIPTS sets how many; LLMFAILOVER_SEED runs a single one again.
func TestSimulation(t *testing.T) {
	first, scripts := uint64(1), 1500
	if n, err := strconv.Atoi(os.Getenv("LLMFAILOVER_SCRIPTS")); err == nil {
		scripts = n
	}
	if testing.Short() {
		scripts = min(scripts, 200)
	}
	if n, err := strconv.ParseUint(os.Getenv("LLMFAILOVER_SEED"), 10, 64); err == nil {
		first, scripts = n, 1
	}
	for seed := first; seed < first+uint64(scripts); seed++ {
		// A failed bubble ends its test.
		if !t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { simulate(t, seed, scripts == 1) }) {
			t.Fatalf("to run this script again: LLMFAILOVER_SEED=%d go test -run TestSimulation", seed)
		}
	}
}

// sim is one script: a pool, what its upstreams do, and who asks it when.
type sim struct {
	seed     uint64
	rng      *rand.Rand // of the script; not used while it runs
	begun    time.Time
	requests []*simRequest
	scripts  map[string]*rand.Rand // by key: what it does next

	mu     sync.Mutex
	well   bool  // the upstreams answer every call
	pool   *pool // the newest
	calls  []*simCall
	faults []string
	wg     sync.WaitGroup
}

// simRequest is one caller's request.
type simRequest struct {
	*http.Request
	n          int
	pool       *pool
	dialect    dialect.Dialect
	streams    bool
	generates  bool
	repeatable bool
	model      string
	body       string
	arrives    time.Duration
	leaves     time.Duration // after arrival; zero: never
	arrived    time.Time
	calls      []*simCall
	w          simWriter
}

func (r *simRequest) last() *simCall {
	if len(r.calls) == 0 {
		return nil
	}
	return r.calls[len(r.calls)-1]
}

// leftAt is when the caller left, if that was before the answer was complete.
func (r *simRequest) leftAt() (time.Time, bool) {
	return r.arrived.Add(r.leaves), r.leaves > 0 && r.Context().Err() != nil
}

// simWriter is what a caller gets.
type simWriter struct {
	header  http.Header
	status  int
	writes  int
	began   time.Time // when the first byte of an answer came
	body    bytes.Buffer
	aborted bool
	alive   bool // comments came before the answer
}

func (w *simWriter) Header() http.Header { return w.header }

func (w *simWriter) WriteHeader(status int) {
	w.writes++
	w.status = status
}

func (w *simWriter) Write(b []byte) (int, error) {
	switch {
	case string(b) == simAlive:
		w.alive = true
	case w.began.IsZero():
		w.began = time.Now()
	}
	return w.body.Write(b)
}

func (w *simWriter) Flush() {}

const simAlive = ": keepalive\n\n"

// committed reports whether anything of an answer has come.
func (w *simWriter) committed() bool { return !w.began.IsZero() }

// content is the body without the comments that came before the answer.
func (w *simWriter) content() string { return strings.ReplaceAll(w.body.String(), simAlive, "") }

func (s *sim) fault(req *simRequest, format string, args ...any) {
	where := "at the end"
	if req != nil {
		where = fmt.Sprintf("request %d", req.n)
	}
	s.faults = append(s.faults, where+", "+time.Since(s.begun).String()+": "+fmt.Sprintf(format, args...))
}

// simulate runs one script.
func simulate(t *testing.T, seed uint64, loud bool) {
	defer func() {
		if r := recover(); r != nil {
			t.Fatalf("seed %d: %v", seed, r)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(seed)
		h := s.handler()
		var cleanup func()
		s.pool, cleanup = testHandler(t, h, s, s.random())
		for n := range 1 + s.rng.IntN(14) {
			s.requests = append(s.requests, s.request(n))
		}
		for _, req := range s.requests {
			s.wg.Go(func() { s.ask(req) })
		}
		for range s.rng.IntN(5) {
			s.operate(t, &cleanup, h)
		}
		s.wg.Wait()
		s.over()
		s.budgets()
		s.recovers()
		cleanup()
		for _, f := range s.faults {
			t.Errorf("seed %d: %s", seed, f)
		}
		if loud || len(s.faults) > 0 {
			s.tell(t)
		}
	})
}

func newSim(seed uint64) *sim {
	return &sim{seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), begun: time.Now(), scripts: make(map[string]*rand.Rand)}
}

func (s *sim) random() func() float64 {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(s.seed, 2))
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return rng.Float64()
	}
}

// chance is true in one of n cases.
func (s *sim) chance(n int) bool { return s.rng.IntN(n) == 0 }

// between is a duration up to so many seconds.
func (s *sim) between(least, most int) time.Duration {
	return time.Duration(least)*time.Second + time.Duration(s.rng.Int64N(int64(most-least)*int64(time.Second)))
}

// handler is a random configuration.
func (s *sim) handler() *Handler {
	h := &Handler{Pool: fmt.Sprintf("sim-%d", s.seed)}
	for i := range 1 + s.rng.IntN(3) {
		p := testProvider(string(rune('a' + i)))
		for j := range 1 + s.rng.IntN(4) {
			k := &Key{Name: fmt.Sprintf("%s%d", p.Name, j), Secret: fmt.Sprintf("secret-%s-%d-%d", p.Name, j, s.seed), Weight: s.rng.IntN(4)}
			if s.chance(3) {
				k.Account = "shared"
			}
			if s.chance(6) {
				k.MaxInFlight = 1 + s.rng.IntN(2)
			}
			if s.chance(6) {
				k.Models = []string{"m-1*"}
			}
			s.scripts[k.Name] = rand.New(rand.NewPCG(s.seed, hashOf(k.Name)))
			p.Keys = append(p.Keys, k)
		}
		switch s.rng.IntN(6) {
		case 0:
			p.Account = "shared"
		case 1:
			p.Models = []Model{{Asked: "m-1", Sent: "model-one"}, {Asked: "m-*"}}
		case 2:
			p.Dialects = []string{"chat", "messages"}
		}
		h.Providers = append(h.Providers, p)
	}
	h.Select = &Select{Policy: selectPolicies[s.rng.IntN(len(selectPolicies))]}
	if h.Select.Policy == selectSticky {
		h.Select.Placeholder = "{http.request.header.X-Session}"
	}
	s.policy(h)
	return h
}

func (s *sim) policy(h *Handler) {
	d := func(least, most int) caddy.Duration { return caddy.Duration(s.between(least, most)) }
	if s.chance(2) {
		n, jitter := s.rng.IntN(6), float64(s.rng.IntN(100))
		h.Retry = &Retry{Backoff: d(0, 3) + 1, BackoffCap: d(3, 9), Jitter: &jitter, MaxRetries: &n, MaxWait: d(1, 9), Window: d(5, 90), MinAttempt: d(0, 3) + 1}
		for range s.rng.IntN(4) {
			h.Retry.SameKey = append(h.Retry.SameKey, d(0, 5)+1)
		}
		if s.chance(2) {
			h.Retry.Budget = &Budget{Percent: float64(1 + s.rng.IntN(50)), PerSecond: 0.05 + s.rng.Float64()/5}
		}
		if s.chance(5) {
			h.Retry.On = []Class{RateLimit, BadRequest, BillingError}
		}
	}
	if s.chance(2) {
		h.Circuit = &Circuit{Threshold: 1 + s.rng.IntN(3), Cooldown: d(1, 40), HalfOpen: halfOpenModes[s.rng.IntN(2)]}
	}
	if s.chance(3) {
		h.Halt = &Halt{Base: d(1, 60), Max: d(60, 200), RateLimit: d(1, 40), Overload: d(1, 10), OverloadCap: d(10, 60), Model: d(1, 90), Recheck: d(1, 600), MaxCooldown: d(60, 4000)}
	}
	h.Timeouts = &Timeouts{}
	if s.chance(2) {
		h.Timeouts = &Timeouts{Headers: d(1, 20), FirstToken: d(1, 20), Idle: d(1, 20)}
	}
	if s.chance(3) {
		h.Timeouts.Deadline = d(4, 40)
	}
	if s.chance(5) {
		h.Timeouts.IdleContent = d(1, 10)
	}
	if s.chance(6) {
		h.Stream = &Stream{Keepalive: d(0, 5) + 1}
	}
	if s.chance(6) {
		h.Limits = &Limits{MaxInFlight: 1 + s.rng.IntN(3), Queue: 1 + s.rng.IntN(3), QueueWait: d(0, 20) + 1}
	}
}

var simPaths = map[dialect.Dialect]string{dialect.Chat: "/v1/chat/completions", dialect.Responses: "/v1/responses", dialect.Messages: "/v1/messages"}

// request is a random request.
func (s *sim) request(n int) *simRequest {
	r := &simRequest{
		n: n, dialect: dialect.All[s.rng.IntN(4)], streams: s.chance(2), generates: true, repeatable: true,
		model: []string{"m-1", "m-2", "m-11"}[s.rng.IntN(3)], arrives: s.between(0, []int{2, 20, 200, 900}[s.rng.IntN(4)]),
	}
	r.w.header = make(http.Header)
	path := simPaths[r.dialect]
	body := fmt.Sprintf(`{"model":%q,"stream":%v,"n":%d}`, r.model, r.streams, n)
	switch {
	case r.dialect == dialect.Gemini:
		// The path names the model; tests of the path are elsewhere.
		path, body = "/v1beta/models/"+r.model+":generateContent", fmt.Sprintf(`{"contents":[],"n":%d}`, n)
		if r.streams {
			path = "/v1beta/models/" + r.model + ":streamGenerateContent?alt=sse"
		}
	case s.chance(6):
		r.dialect, r.streams, r.generates, r.repeatable = dialect.Chat, false, false, false
		path, body = "/v1/images/generations", fmt.Sprintf(`{"model":%q,"n":%d}`, r.model, n)
	}
	r.body = body
	if s.chance(6) {
		r.leaves = s.between(0, 20) + 1
	}
	r.Request = httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("X-Sim", strconv.Itoa(n))
	r.Header.Set("X-Session", strconv.Itoa(n%3))
	r.Header.Set("Authorization", "Bearer of-the-caller")
	return r
}

// ask makes a request when its time comes, and waits for the answer.
func (s *sim) ask(req *simRequest) {
	advance(req.arrives)
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	if req.leaves > 0 {
		timer := time.AfterFunc(req.leaves, cancel)
		defer timer.Stop()
	}
	s.mu.Lock()
	req.Request = inCaddy(req.WithContext(ctx))
	req.arrived, req.pool = time.Now(), s.pool
	s.mu.Unlock()
	func() {
		defer func() {
			switch r := recover(); r {
			case nil:
			case http.ErrAbortHandler:
				req.w.aborted = true
			default:
				s.mu.Lock()
				s.fault(req, "panic: %v\n%s", r, debug.Stack())
				s.mu.Unlock()
			}
		}()
		if err := req.pool.serve(&req.w, req.Request); err != nil {
			s.mu.Lock()
			s.fault(req, "error: %v", err)
			s.mu.Unlock()
		}
	}()
	s.answered(req)
}

// operate does what operators do: switch keys off and on, reset, and reload.
func (s *sim) operate(t *testing.T, cleanup *func(), h *Handler) {
	advance(s.between(0, 60))
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pool
	k := p.credentials[s.rng.IntN(len(p.credentials))]
	switch s.rng.IntN(6) {
	case 0, 1:
		setDisabled([]*credential{k}, true)
	case 2:
		setDisabled(p.credentials, false)
	case 3:
		resetAll(p.providers, p.credentials, false)
	case 4:
		resetAll(nil, []*credential{k}, true)
	case 5:
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		again := new(Handler)
		if err := json.Unmarshal(text, again); err != nil {
			t.Fatal(err)
		}
		for _, provider := range again.Providers {
			provider.TransportRaw = nil
		}
		next, done := testHandler(t, again, s, s.random())
		(*cleanup)()
		s.pool, *cleanup = next, done
	}
}

// tell shows what happened in a script.
func (s *sim) tell(t *testing.T) {
	for _, req := range s.requests {
		t.Logf("request %d: %s %s %s stream=%v at %v: %d aborted=%v %.200s", req.n, req.dialect, req.model, req.URL.Path, req.streams, req.arrives, req.w.status, req.w.aborted, req.w.body.String())
		for _, c := range req.calls {
			t.Logf("  %s: %v to %v: %s hint %v: %s %s", c.key.name, c.began.Sub(s.begun), c.ended.Sub(s.begun), c.outcome.kind, c.outcome.hint, c.class, c.scope)
		}
	}
}
