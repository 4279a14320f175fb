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

package virtual

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Unix(0, 0).UTC()

// TestOrder: time passes to the next moment only when all wait, and what is due at one moment goes in the order in
// which it was asked for.
func TestOrder(t *testing.T) {
	c := New(start)
	var log []string
	say := func(what string) { log = append(log, fmt.Sprintf("%v %s", c.Now().Sub(start), what)) }
	wait := func(d time.Duration) { c.Wait(t.Context(), d, nil) }
	for _, name := range []string{"a", "b"} {
		c.Go(func() {
			say(name + " begins")
			wait(2 * time.Second)
			say(name + " has waited")
		})
	}
	c.Go(func() {
		wait(time.Second)
		c.AfterFunc(time.Second, func() { say("alarm") })
		late := c.AfterFunc(time.Second, func() { say("stopped alarm") })
		wait(0)
		if !late.Stop() || late.Stop() {
			t.Error("Stop says wrong")
		}
		moved := c.AfterFunc(time.Hour, func() { say("moved alarm") })
		moved.Reset(500 * time.Millisecond)
		c.Go(func() { say("c's child") })
		wait(3 * time.Second)
		say("c has waited")
	})
	begun := time.Now()
	c.Run()
	want := []string{
		"0s a begins", "0s b begins", "1s c's child", "1.5s moved alarm",
		"2s a has waited", "2s b has waited", "2s alarm", "4s c has waited",
	}
	if !slices.Equal(log, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(log, "\n"), strings.Join(want, "\n"))
	}
	if time.Since(begun) > 10*time.Second {
		t.Error("it took real time")
	}
}

// TestWait: it ends with its time, its event or its context, whichever comes first.
func TestWait(t *testing.T) {
	for _, tc := range []struct {
		what          string
		event, cancel time.Duration // 0: never
		d             time.Duration
		took          time.Duration
		ready         bool
	}{
		{"its time", 0, 0, 3 * time.Second, 3 * time.Second, false},
		{"its event", time.Second, 2 * time.Second, 3 * time.Second, time.Second, true},
		{"its context", 2 * time.Second, time.Second, 3 * time.Second, time.Second, false},
		{"no time", time.Second, 0, 0, 0, false},
		{"less than none", time.Second, 0, -1, 0, false},
	} {
		t.Run(tc.what, func(t *testing.T) {
			c := New(start)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			event := make(chan struct{})
			after := func(d time.Duration, f func()) {
				if d > 0 {
					c.AfterFunc(d, f)
				}
			}
			after(tc.event, func() { close(event) })
			after(tc.cancel, cancel)
			c.Go(func() {
				if got := c.Wait(ctx, tc.d, event); got != tc.ready {
					t.Errorf("ready: %v", got)
				}
				if took := c.Now().Sub(start); took != tc.took {
					t.Errorf("took %v", took)
				}
			})
			c.Run()
		})
	}
}

// TestOneRuns: goroutines that share a value need no lock, and go the same way each time.
func TestOneRuns(t *testing.T) {
	run := func() []int {
		c := New(start)
		var order []int
		turn := make(chan struct{})
		for n := range 200 {
			c.Go(func() {
				c.Wait(t.Context(), time.Duration(n%7)*time.Millisecond, nil)
				order = append(order, n)
				c.Wait(t.Context(), time.Hour, turn)
				order = append(order, n)
				if n == 150 {
					return
				}
				c.Wait(t.Context(), time.Duration(n%5)*time.Millisecond, nil)
				order = append(order, n)
			})
		}
		c.AfterFunc(time.Second, func() { close(turn) })
		c.Run()
		return order
	}
	first := run()
	if len(first) != 599 {
		t.Fatalf("%d steps", len(first))
	}
	for range 5 {
		if !slices.Equal(run(), first) {
			t.Fatal("another order")
		}
	}
}

// TestStuck: waiting for what cannot come is said, not done.
func TestStuck(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it ended")
		}
	}()
	c := New(start)
	c.alive++
	c.Run()
}
