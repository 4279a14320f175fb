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

import "time"

// circuit is what is known of a key's faults in a row. It is a plain value under its key's lock: the clock, the
// thresholds and the sequence numbers come from outside.
//
// A fault or success counts only if its attempt started after the newest change of state; else it tells of a time
// before it (see [sequence]).
type circuit struct {
	failures int
	reason   Class     // of the fault that opened it last
	since    time.Time // when it was closed last
	until    time.Time // zero: closed; in the future: open; past: half-open
	changed  uint64    // when the state last changed
	faulted  uint64    // when a fault was last counted
	probe    *visit    // the one request that may find out whether a half-open key serves again
}

// The states of a circuit, as the admin API names them.
const (
	circuitClosed   = "closed"
	circuitOpen     = "open"
	circuitHalfOpen = "half_open"
)

func (c *circuit) state(now time.Time) string {
	switch {
	case c.until.IsZero():
		return circuitClosed
	case now.Before(c.until):
		return circuitOpen
	default:
		return circuitHalfOpen
	}
}

// lapse turns a circuit whose cooldown is over back to closed at once, as `half_open reset` wants it.
func (c *circuit) lapse(now time.Time, seq func() uint64) {
	if c.state(now) == circuitHalfOpen {
		*c = circuit{changed: seq()}
	}
}

// fault counts a fault of an attempt that started at start, and reports whether that opened the circuit.
func (c *circuit) fault(class Class, start uint64, now time.Time, threshold int, cooldown time.Duration, seq func() uint64) bool {
	if start < c.changed || c.state(now) == circuitOpen {
		return false
	}
	c.failures++
	c.faulted = seq()
	if c.state(now) == circuitClosed && c.failures < threshold {
		return false
	}
	if c.since.IsZero() {
		c.since = now
	}
	c.reason, c.until, c.changed, c.probe = class, now.Add(cooldown), c.faulted, nil
	return true
}

// success closes the circuit, and reports whether it was not closed. A success that started before the newest fault
// proves nothing about what follows it.
func (c *circuit) success(start uint64, seq func() uint64) (closed bool) {
	if start < max(c.changed, c.faulted) {
		return false
	}
	changed := c.changed
	if closed = !c.until.IsZero(); closed {
		changed = seq()
	}
	*c = circuit{changed: changed}
	return closed
}

// idle reports whether there is nothing to know of the key.
func (c *circuit) idle() bool { return c.failures == 0 && c.until.IsZero() }
