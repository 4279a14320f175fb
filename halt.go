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

// bench is a key, key+model, account or provider set aside until a time, for a reason. It is a plain value under
// its owner's lock.
//
// A bench with strikes is a halt: when its time is over it still stands, and one request at a time may probe
// whether the trouble is over, until a success clears it.
type bench struct {
	reason  Class
	hint    string // how the upstream said until when, if it did
	since   time.Time
	until   time.Time
	strikes int
	changed uint64 // when it last changed, also by being cleared (see [sequence])
	probe   *visit
}

// active reports whether the time is not over yet.
func (b *bench) active(now time.Time) bool { return now.Before(b.until) }

// ending reports whether a halt's time is over, and nobody has proved yet that the trouble is.
func (b *bench) ending(now time.Time) bool { return b.strikes > 0 && !b.active(now) }

// clear forgets it, if the success that asks for it started after its newest change, and reports whether that ended a
// halt.
func (b *bench) clear(start uint64, seq func() uint64) (ended bool) {
	if b.reason == "" || start < b.changed {
		return false
	}
	ended = b.strikes > 0
	*b = bench{changed: seq()}
	return ended
}

// rest sets it aside for as long as a verdict says, and reports whether that changed anything. A hint, also a late one,
// never shortens a bench; a late one begins none either. A halt stays one, with its reason and strikes.
func (b *bench) rest(v Verdict, start uint64, now time.Time, seq func() uint64) bool {
	until := now.Add(v.Wait)
	if b.active(now) && !until.After(b.until) || !b.active(now) && start < b.changed {
		return false
	}
	switch {
	case b.strikes > 0: // a limit says nothing about what halted it, which only a success clears
		v.Class = b.reason
	case !b.active(now) || b.reason.Parent() != v.Class.Parent():
		b.since = now
	}
	b.reason, b.hint, b.until, b.changed, b.probe = v.Class, v.Hint, until, seq(), nil
	return true
}

// halt adds a strike and sets it aside for base × 2^(strikes-1), at most limit; or for as long as the upstream said, if it did.
// A verdict of an attempt that started before the newest change adds nothing; its hint may still extend the bench.
func (b *bench) halt(v Verdict, start uint64, now time.Time, base, limit time.Duration, seq func() uint64) {
	if start < b.changed {
		if b.active(now) && v.Wait > 0 {
			v.Class = b.reason
			b.rest(v, start, now, seq)
		}
		return
	}
	if b.reason.Parent() != v.Class.Parent() { // another trouble; a finer class of the same is not
		*b = bench{since: now}
	}
	b.reason = v.Class
	b.strikes++
	d := v.Wait
	if d <= 0 {
		d = doubled(base, b.strikes-1, limit)
	}
	b.hint, b.until, b.changed, b.probe = v.Hint, now.Add(d), seq(), nil
}

// doubled returns base × 2^n, at most limit.
func doubled(base time.Duration, n int, limit time.Duration) time.Duration {
	d := base
	for ; n > 0 && d < limit; n-- {
		d *= 2
	}
	return min(d, limit)
}
