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
	"testing"
	"time"
)

// counter is a sequence of one's own.
type counter uint64

func (c *counter) next() uint64 { *c++; return uint64(*c) }

// circuitPlay plays events on a circuit whose threshold is 3 and whose cooldown 30 s.
type circuitPlay struct {
	circuit
	seq counter
	now time.Time
}

func newCircuitPlay() *circuitPlay { return &circuitPlay{now: time.Unix(1e9, 0)} }

// fault is one of an attempt that began just now.
func (p *circuitPlay) fault() bool { return p.faultSince(uint64(p.seq)) }

func (p *circuitPlay) faultSince(start uint64) bool {
	return p.circuit.fault(ServerError, start, p.now, 3, 30*time.Second, p.seq.next)
}

func (p *circuitPlay) success() { p.circuit.success(uint64(p.seq), p.seq.next) }

func (p *circuitPlay) after(d time.Duration) { p.now = p.now.Add(d) }

func (p *circuitPlay) want(t *testing.T, state string, failures int) {
	t.Helper()
	if got := p.state(p.now); got != state || p.failures != failures {
		t.Errorf("%s with %d failures, want %s with %d", got, p.failures, state, failures)
	}
}

func TestCircuitOpensAtTheThreshold(t *testing.T) {
	p := newCircuitPlay()
	for n := 1; n < 3; n++ {
		if p.fault() {
			t.Errorf("fault %d opened it", n)
		}
		p.want(t, circuitClosed, n)
	}
	if !p.fault() {
		t.Error("the third fault did not open it")
	}
	p.want(t, circuitOpen, 3)
	p.after(30*time.Second - 1)
	p.want(t, circuitOpen, 3)
	p.after(1)
	p.want(t, circuitHalfOpen, 3)
}

func TestCircuitCountsFaultsInARow(t *testing.T) {
	p := newCircuitPlay()
	for range 5 {
		p.fault()
		p.fault()
		p.success()
		p.want(t, circuitClosed, 0)
	}
	if !p.idle() {
		t.Error("there is something left to know of it")
	}
}

func TestCircuitHalfOpen(t *testing.T) {
	p := newCircuitPlay()
	for range 3 {
		p.fault()
	}
	p.after(30 * time.Second)
	p.probe = &visit{}
	if !p.fault() || p.probe != nil {
		t.Error("a fault of the probe does not open it again")
	}
	p.want(t, circuitOpen, 4)
	p.after(31 * time.Second)
	p.probe = &visit{}
	p.success()
	p.want(t, circuitClosed, 0)
	if p.probe != nil {
		t.Error("the probe's slot is still taken")
	}
	if p.fault() {
		t.Error("the first fault after it closed opened it")
	}
}

// TestCircuitWithoutProbe: with half_open reset everybody may pass, and the count starts at zero.
func TestCircuitWithoutProbe(t *testing.T) {
	p := newCircuitPlay()
	p.fault()
	p.lapse(p.now, p.seq.next)
	p.want(t, circuitClosed, 1)
	p.fault()
	p.fault()
	p.after(30*time.Second - 1)
	p.lapse(p.now, p.seq.next)
	p.want(t, circuitOpen, 3)
	begun := uint64(p.seq)
	p.after(1)
	p.lapse(p.now, p.seq.next)
	p.want(t, circuitClosed, 0)
	p.faultSince(begun)
	p.want(t, circuitClosed, 0)
	p.fault()
	p.want(t, circuitClosed, 1)
}

// TestCircuitStaleEvidence: what an attempt brings that began before the newest change tells of a time before it.
func TestCircuitStaleEvidence(t *testing.T) {
	t.Run("a fault while it is open", func(t *testing.T) {
		p := newCircuitPlay()
		for range 3 {
			p.fault()
		}
		until := p.until
		p.after(time.Second)
		if p.fault() || p.until != until {
			t.Error("it lasts longer")
		}
	})
	t.Run("a fault from before it opened, when it is half open", func(t *testing.T) {
		p := newCircuitPlay()
		begun := uint64(p.seq)
		for range 3 {
			p.fault()
		}
		p.after(time.Minute)
		if p.faultSince(begun) {
			t.Error("it opened again")
		}
		p.want(t, circuitHalfOpen, 3)
	})
	t.Run("a fault from before it closed", func(t *testing.T) {
		p := newCircuitPlay()
		for range 3 {
			p.fault()
		}
		p.after(time.Minute)
		begun := uint64(p.seq)
		p.success()
		p.faultSince(begun)
		p.want(t, circuitClosed, 0)
	})
	t.Run("a success from before the newest fault", func(t *testing.T) {
		p := newCircuitPlay()
		begun := uint64(p.seq)
		p.fault()
		p.fault()
		p.circuit.success(begun, p.seq.next)
		p.want(t, circuitClosed, 2)
	})
	t.Run("a success from before it opened", func(t *testing.T) {
		p := newCircuitPlay()
		begun := uint64(p.seq)
		for range 3 {
			p.fault()
		}
		p.after(time.Minute)
		p.circuit.success(begun, p.seq.next)
		p.want(t, circuitHalfOpen, 3)
	})
	t.Run("faults of attempts that ran side by side", func(t *testing.T) {
		p := newCircuitPlay()
		begun := uint64(p.seq)
		for n := range 3 {
			if opened := p.faultSince(begun); opened != (n == 2) {
				t.Errorf("fault %d: opened %v", n+1, opened)
			}
		}
		p.want(t, circuitOpen, 3)
	})
}
