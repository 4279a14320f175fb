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

// Package virtual runs goroutines in virtual time: it passes only when all of them wait, and then at once to the next
// moment at which one of them has something to do. Only one of them runs at a time, in an order that depends on
// nothing but what they do, so the same work always goes the same way.
//
// (testing/synctest does the like for tests, of any code, and without the order.)
package virtual

import (
	"container/heap"
	"context"
	"time"
)

// Clock is a virtual clock and the goroutines that live by it. Of its methods only Go, AfterFunc and Run may be called
// from elsewhere than from these goroutines, and only before Run.
type Clock struct {
	now     time.Time
	seq     int
	alarms  alarms  // in order of their time
	ready   []*task // in the order in which they run
	waiting []*task // those that are not ready
	events  []*task // of them those that wait for an event, and some that did
	ended   bool    // a function of AfterFunc has run, so that a context may have ended
	alive   int
	running *task
	paused  chan struct{} // the running one waits, or has ended
}

// task is one goroutine.
type task struct {
	resume chan struct{}
	wakes  *Timer // nil: it is ready
	ctx    context.Context
	event  <-chan struct{}
	at     int  // in waiting
	listed bool // in events
}

// New returns a clock that stands at start.
func New(start time.Time) *Clock {
	return &Clock{now: start, paused: make(chan struct{})}
}

// Now returns the virtual time.
func (c *Clock) Now() time.Time { return c.now }

// Go has f run in a goroutine of its own, after those that are ready to run. It must wait for nothing but by Wait.
func (c *Clock) Go(f func()) {
	t := &task{resume: make(chan struct{})}
	c.alive++
	c.ready = append(c.ready, t)
	go func() {
		<-t.resume
		defer func() {
			c.alive--
			c.paused <- struct{}{}
		}()
		f()
	}()
}

// Wait waits until d is over, ready is closed or ctx ends, which a function of AfterFunc must have brought about. It
// reports whether ready is closed.
func (c *Clock) Wait(ctx context.Context, d time.Duration, ready <-chan struct{}) bool {
	if d > 0 && ctx.Err() == nil && !closed(ready) {
		t := c.running
		t.ctx, t.event = ctx, ready
		t.wakes = c.alarm(d, func() { c.wake(t) })
		t.at = len(c.waiting)
		c.waiting = append(c.waiting, t)
		if ready != nil && !t.listed {
			t.listed = true
			c.events = append(c.events, t)
		}
		c.paused <- struct{}{}
		<-t.resume
	}
	return closed(ready)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wake makes a waiting goroutine ready to run.
func (c *Clock) wake(t *task) {
	t.wakes.Stop()
	t.wakes = nil
	last := len(c.waiting) - 1
	c.waiting[t.at] = c.waiting[last]
	c.waiting[t.at].at = t.at
	c.waiting[last] = nil
	c.waiting = c.waiting[:last]
	c.ready = append(c.ready, t)
}

// Run runs the goroutines until all of them have ended. What AfterFunc would still have called is not.
func (c *Clock) Run() {
	for c.alive > 0 {
		if len(c.ready) > 0 {
			c.running = c.ready[0]
			c.ready = append(c.ready[:0], c.ready[1:]...)
			c.running.resume <- struct{}{}
			<-c.paused
			continue
		}
		if c.wakeByEvent() {
			continue
		}
		if len(c.alarms) == 0 {
			panic("virtual: all goroutines wait for what cannot come")
		}
		next := heap.Pop(&c.alarms).(*Timer)
		c.now = next.due
		next.call()
	}
}

// wakeByEvent wakes those that wait for what has happened.
func (c *Clock) wakeByEvent() bool {
	still := c.events[:0]
	for _, t := range c.events {
		if t.wakes != nil && closed(t.event) {
			c.wake(t)
		}
		if t.listed = t.wakes != nil; t.listed {
			still = append(still, t)
		}
	}
	clear(c.events[len(still):])
	c.events = still
	if c.ended {
		c.ended = false
		for i := len(c.waiting) - 1; i >= 0; i-- { // from the end, as wake moves the last one
			if c.waiting[i].ctx.Err() != nil {
				c.wake(c.waiting[i])
			}
		}
	}
	return len(c.ready) > 0
}

// AfterFunc calls f once d is over, while no goroutine runs. It must not wait.
func (c *Clock) AfterFunc(d time.Duration, f func()) *Timer {
	return c.alarm(d, func() {
		c.ended = true
		f()
	})
}

func (c *Clock) alarm(d time.Duration, f func()) *Timer {
	t := &Timer{clock: c, call: f, at: -1}
	t.Reset(d)
	return t
}

// Timer is a call to come.
type Timer struct {
	clock *Clock
	call  func()
	due   time.Time
	seq   int
	at    int // in alarms; -1: it is not there
}

// Stop prevents the call, and reports whether it was to come.
func (t *Timer) Stop() bool {
	if t.at < 0 {
		return false
	}
	heap.Remove(&t.clock.alarms, t.at)
	return true
}

// Reset has the call come once d is over from now, and reports whether it was to come before.
func (t *Timer) Reset(d time.Duration) bool {
	was := t.Stop()
	t.clock.seq++
	t.due, t.seq = t.clock.now.Add(max(d, 0)), t.clock.seq
	heap.Push(&t.clock.alarms, t)
	return was
}

// alarms is a heap by time, and among equal times by age.
type alarms []*Timer

func (a alarms) Len() int { return len(a) }

func (a alarms) Less(i, j int) bool {
	if a[i].due.Equal(a[j].due) {
		return a[i].seq < a[j].seq
	}
	return a[i].due.Before(a[j].due)
}

func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].at, a[j].at = i, j
}

// Push implements heap.Interface.
func (a *alarms) Push(x any) {
	t := x.(*Timer)
	t.at = len(*a)
	*a = append(*a, t)
}

// Pop implements heap.Interface.
func (a *alarms) Pop() any {
	last := len(*a) - 1
	t := (*a)[last]
	(*a)[last] = nil
	*a, t.at = (*a)[:last], -1
	return t
}
