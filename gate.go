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
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"
)

// gate lets a bounded number of a pool's requests through at once, and has a bounded number of others wait for their
// turn, first come, first served. Counts outlive config reloads; the limits come with each request.
type gate struct {
	mu     sync.Mutex
	inside int
	queue  []chan struct{} // each is closed when its turn has come
}

// gateLimits is what a gate is held to, as the config has it.
type gateLimits struct {
	inside int
	queue  int
	wait   time.Duration
}

var errQueueFull = errors.New("the pool's limit of requests under way is reached")

// enter waits until the request may go through. An error is errQueueFull, or the caller has left. Who has entered
// must leave.
func (g *gate) enter(ctx context.Context, c clock, limits gateLimits) error {
	g.mu.Lock()
	if g.inside < limits.inside {
		g.inside++
		g.mu.Unlock()
		return nil
	}
	if len(g.queue) >= limits.queue {
		g.mu.Unlock()
		return errQueueFull
	}
	turn := make(chan struct{})
	g.queue = append(g.queue, turn)
	g.mu.Unlock()

	if c.Wait(ctx, limits.wait, turn) {
		return nil
	}
	return g.quit(turn, cmp.Or(ctx.Err(), errQueueFull), limits)
}

// quit takes a request out of the queue. If its turn has come in this very moment, it has entered, and leaves again
// if nobody is there any more.
func (g *gate) quit(turn chan struct{}, why error, limits gateLimits) error {
	g.mu.Lock()
	i := slices.Index(g.queue, turn)
	if i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	}
	g.mu.Unlock()
	switch {
	case i >= 0:
		return why
	case errors.Is(why, errQueueFull):
		return nil
	}
	g.leave(limits)
	return why
}

// counts are how many requests are inside and how many wait.
func (g *gate) counts() (inside, queued int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside, len(g.queue)
}

// leave gives the place to the one that has waited longest, or up.
func (g *gate) leave(limits gateLimits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.admit(limits)
}

// change lets in whom new limits have room for.
func (g *gate) change(limits gateLimits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if limits.inside == 0 { // no limit any more
		limits.inside = math.MaxInt
	}
	g.admit(limits)
}

// admit lets in as many of the queue as there is room for; the lock is held.
func (g *gate) admit(limits gateLimits) {
	for len(g.queue) > 0 && g.inside < limits.inside {
		g.inside++
		close(g.queue[0])
		g.queue = slices.Delete(g.queue, 0, 1)
	}
}
