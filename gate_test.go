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
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestGateLetsALimitedNumberThrough(t *testing.T) {
	g, limits := new(gate), gateLimits{inside: 2}
	for range 2 {
		if err := g.enter(t.Context(), machineClock{}, limits); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.enter(t.Context(), machineClock{}, limits); !errors.Is(err, errQueueFull) {
		t.Errorf("the third got %v, want %v", err, errQueueFull)
	}
	g.leave(limits)
	if err := g.enter(t.Context(), machineClock{}, limits); err != nil {
		t.Errorf("after one left the next got %v", err)
	}
}

func TestGateServesTheQueueInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, limits := new(gate), gateLimits{inside: 1, queue: 10, wait: time.Minute}
		if err := g.enter(t.Context(), machineClock{}, limits); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var served []int // only who is inside touches it
		for i := range 10 {
			wg.Go(func() {
				if err := g.enter(t.Context(), machineClock{}, limits); err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
				served = append(served, i)
				g.leave(limits)
			})
			synctest.Wait() // they come one after the other
		}
		if len(served) > 0 {
			t.Errorf("%v got in beside another", served)
		}
		g.leave(limits)
		wg.Wait()
		for i, n := range served {
			if i != n {
				t.Fatalf("served in the order %v", served)
			}
		}
		if len(served) != 10 || g.inside != 0 || len(g.queue) != 0 {
			t.Errorf("%d served, %d inside, %d waiting", len(served), g.inside, len(g.queue))
		}
	})
}

func TestGateEndsEachWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, limits := new(gate), gateLimits{inside: 1, queue: 1, wait: time.Second}
		if err := g.enter(t.Context(), machineClock{}, limits); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := g.enter(t.Context(), machineClock{}, limits); !errors.Is(err, errQueueFull) || time.Since(begun) != time.Second {
			t.Errorf("got %v after %v, want %v after 1s", err, time.Since(begun), errQueueFull)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		begun = time.Now()
		if err := g.enter(ctx, machineClock{}, limits); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 300*time.Millisecond {
			t.Errorf("got %v after %v, want the caller's end after 300ms", err, time.Since(begun))
		}
		if len(g.queue) != 0 {
			t.Errorf("%d still wait", len(g.queue))
		}
		g.leave(limits)
		if g.inside != 0 {
			t.Errorf("%d still inside", g.inside)
		}
	})
}

// A caller may leave, or run out of patience, in the very moment in which the turn comes: no place is lost.
func TestGateLosesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, limits := new(gate), gateLimits{inside: 3, queue: 50, wait: 7 * time.Millisecond}
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				advance(time.Duration(i%40) * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%11)*time.Millisecond)
				defer cancel()
				if g.enter(ctx, machineClock{}, limits) == nil {
					advance(time.Duration(i%5) * time.Millisecond)
					g.leave(limits)
				}
			})
		}
		wg.Wait()
		if g.inside != 0 || len(g.queue) != 0 {
			t.Errorf("%d inside, %d waiting", g.inside, len(g.queue))
		}
	})
}

// TestGateTakesNewLimits: what a reload changes holds at once, also for those who wait.
func TestGateTakesNewLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := gateLimits{inside: 1, queue: 5, wait: time.Minute}
		g := new(gate)
		if err := g.enter(t.Context(), machineClock{}, old); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := g.enter(t.Context(), machineClock{}, old); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		g.change(gateLimits{inside: 2})
		synctest.Wait()
		if inside, queued := g.counts(); inside != 2 || queued != 2 {
			t.Errorf("%d inside, %d waiting", inside, queued)
		}
		g.change(gateLimits{}) // no limit, and nobody need wait any more
		wg.Wait()
		for range 4 {
			g.leave(gateLimits{inside: 1})
		}
		if g.inside != 0 {
			t.Errorf("%d inside", g.inside)
		}
	})
}

// TestQueueWaitsForLimitedKeys: where all keys merely cool and there is a queue, requests wait for the soonest instead of
// failing: the one that met the limit, and those that come after it.
func TestQueueWaitsForLimitedKeys(t *testing.T) {
	for _, tc := range []struct {
		limits string
		want   int
		calls  string
	}{
		{"", 429, "k1"},
		{"max_in_flight 9 queue 9 5s", 200, "k1 k1 k1 k1 k1"},
	} {
		t.Run(tc.limits, func(t *testing.T) {
			a := newUpstream(t).on("k1", limited("Retry-After-Ms", "400"), ok)
			s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+`
				retry {
					max_wait 100ms
				}
				limits {
					`+tc.limits+`
				}
			}`)
			var wg sync.WaitGroup
			ask := func() { s.post("/v1/chat/completions", chat("m")).want(tc.want) }
			wg.Go(ask)
			eventually(t, "the key cools", func() bool { return s.state("default.providers.default.keys.k1.status") == "cooling" })
			for range 3 {
				wg.Go(ask)
			}
			wg.Wait()
			a.wantOrder(tc.calls)
			if first, second := a.asked("k1")[0], a.asked("k1"); len(second) > 1 && second[1].at.Sub(first.at) < 400*time.Millisecond {
				t.Errorf("the second call came after %v", second[1].at.Sub(first.at))
			}
		})
	}
}

// TestQueueEndsWithTheWindow: after the window nothing may begin, so nobody queues for longer, and none is told of a
// deadline that there is not.
func TestQueueEndsWithTheWindow(t *testing.T) {
	free := make(chan struct{})
	f := &families[0]
	a := newUpstream(t).on("k1", events(f.begin, f.text("x"), until(free), f.end))
	s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+`
		retry {
			window 300ms
		}
		limits {
			max_in_flight 1 queue 5 20s
		}
	}`)
	first := s.open(s.client, f)
	first.until("delta")
	if got := s.post(f.path, f.request).want(503).wantJSON("error.code", "queue_full"); got.took > 5*time.Second {
		t.Errorf("took %v", got.took)
	}
	close(free)
}
