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
	"slices"
	"time"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// candidates are the keys that may serve one request for one model, as a value: another model of the same request
// gets candidates of its own.
type candidates struct {
	pool    *pool
	dialect dialect.Dialect
	model   string // as asked; empty if the request names none, which restricts nothing
	sealed  bool   // it cannot be renamed
	sticky  uint64 // the caller's hash, with the sticky policy
	first   int    // with round_robin: the index after the key that had its turn; 0: none yet
	tried   []*credential
	fresh   bool    // of other providers only those not asked yet will do
	anyway  bool    // keys that are not ripe will do
	chance  float64 // of the request's own, from 0 to 1; see ripe
	drawn   bool    // it is
}

// visit is all attempts of a request on one key in a row. It owns the probe slots it was given, and remembers which
// benches it caused itself: those do not keep it from finishing its waits.
type visit struct {
	*credential
	model  string // as sent
	probes bool   // it holds a probe slot
	probed bool   // it does, or did

	calling bool   // a call of it is under way, and counted
	started uint64 // the sequence number at the start of its newest attempt
	repeats int    // same-key waits done
	charged bool   // its fault has been counted
	final   bool   // the request cannot be sent again after it

	changes    []change // not yet told
	own        []uint64 // the changes of benches that it made
	ownCircuit uint64   // and of the circuit
}

// caused reports whether the visit itself made a change of a bench.
func (v *visit) caused(change uint64) bool { return slices.Contains(v.own, change) }

// where is a set of places that another candidate may be in, seen from the one asked last.
type where uint8

const (
	sameAccount   where = 1 << iota // another key that shares its account
	otherAccount                    // another account of the same provider
	otherProvider                   // another provider
	anywhere      = sameAccount | otherAccount | otherProvider
)

func (c *credential) placeOf(other *credential) where {
	switch {
	case c == nil || other.provider != c.provider:
		return otherProvider
	case other.account != c.account:
		return otherAccount
	default:
		return sameAccount
	}
}

// obstacle says why a key may not be asked now.
type obstacle uint8

const (
	free       obstacle = iota
	notServing          // not for this model or dialect: no candidate at all
	disabled            // by an operator
	rejected            // its credential was refused
	halted              // its account or provider is halted, or somebody probes whether it still is
	open                // its circuit is open, or somebody probes it
	busy                // it has as many calls under way as it may
	cooling             // it asked to be left alone
	modelGone           // it does not have the model
)

// standing is whether a key may be asked, and if not, why and until when. Until is zero where only an event ends it.
type standing struct {
	obstacle obstacle
	until    time.Time
}

// next picks and claims the free candidate that comes first in the pool's order, in the first of places that has one;
// or nil. The places are seen from last. What stands in the way of the others is told by survey.
//
// A key that is not ripe is picked only if no other is free, in whatever place.
func (cs *candidates) next(last *credential, now time.Time, places ...where) *visit {
	for _, anyway := range [...]bool{false, true} {
		cs.anyway = anyway
		for _, place := range places {
			if place == 0 {
				continue
			}
			if v := cs.claimOne(last, place, now); v != nil {
				return v
			}
		}
	}
	return nil
}

func (cs *candidates) claimOne(last *credential, places where, now time.Time) *visit {
	for {
		c := cs.pick(last, places, now)
		if c == nil {
			return nil
		}
		v := &visit{credential: c, model: c.provider.sentModel(cs.model)}
		if c.claim(v, now).obstacle == free { // else somebody else took its probe slot meanwhile
			cs.tried = append(cs.tried, c)
			return v
		}
	}
}

// eligible reports whether c may be picked now.
func (cs *candidates) eligible(c, last *credential, places where, now time.Time) bool {
	if cs.fresh && c.provider != last.provider && cs.asked(c.provider) {
		return false
	}
	return last.placeOf(c)&places != 0 && !slices.Contains(cs.tried, c) && cs.standing(c, now).obstacle == free && (cs.anyway || cs.ripe(c, now))
}

// asked reports whether the request has asked a provider before.
func (cs *candidates) asked(p *provider) bool {
	return slices.ContainsFunc(cs.tried, func(c *credential) bool { return c.provider == p })
}

// leastShare is what a key that has just recovered gets of its traffic, as in Envoy's slow start (min_weight_percent).
const leastShare = 0.1

// ripe reports whether c is as good as any: its share is not still growing after it or its provider recovered, and
// something is left of its account's limits.
func (cs *candidates) ripe(c *credential, now time.Time) bool {
	if c.account.facts.spent.is(c.provider.sentModel(cs.model), now) {
		return false
	}
	ramp := cs.pool.policy.ramp
	if ramp == 0 {
		return true
	}
	back := c.facts.recovered.Load()
	for _, h := range c.halts() {
		back = max(back, h.recovered.Load())
	}
	since := now.Sub(time.Unix(0, back))
	if back == 0 || since >= ramp {
		return true
	}
	if !cs.drawn { // once a request, so that it sees each key always alike
		cs.chance, cs.drawn = cs.pool.random(), true
	}
	return cs.chance < max(leastShare, float64(since)/float64(ramp))
}

// survey is what stands in the way of a request's candidates.
type survey struct {
	free    where              // where untried free candidates are, seen from last
	fresh   bool               // one of them is at a provider not asked yet
	serving int                // how many candidates there are
	count   [modelGone + 1]int // untried candidates by obstacle
	soonest time.Time          // when the first untried candidate may be back
	cooling time.Time          // when the first that merely cools may be back
}

// survey looks at all untried candidates; it runs only after a failure or where no candidate is free.
func (cs *candidates) survey(last *credential, now time.Time) survey {
	var s survey
	for _, c := range cs.pool.credentials {
		st := cs.standing(c, now)
		if st.obstacle == notServing {
			continue
		}
		s.serving++
		if slices.Contains(cs.tried, c) {
			continue
		}
		s.count[st.obstacle]++
		if st.obstacle == free {
			s.free |= last.placeOf(c)
			s.fresh = s.fresh || !cs.asked(c.provider)
			continue
		}
		if st.until.IsZero() && st.obstacle != disabled { // a call or a probe is under way: soon
			st.until = now
		}
		s.soonest = sooner(s.soonest, st.until)
		if st.obstacle == cooling {
			s.cooling = sooner(s.cooling, st.until)
		}
	}
	return s
}

// sooner returns the earlier of two times, of which either may be zero for "not known".
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// standing looks without claiming.
func (cs *candidates) standing(c *credential, now time.Time) standing {
	if !c.serves(cs.dialect, cs.model) || cs.sealed && c.provider.sentModel(cs.model) != cs.model {
		return standing{obstacle: notServing}
	}
	return c.look(c.provider.sentModel(cs.model), nil, now)
}

// claim is look, takes the probe slots that v needs and counts a call as under way, which the end of the exchange
// takes back. What was taken before an obstacle is handed back.
func (c *credential) claim(v *visit, now time.Time) standing {
	st := c.look(v.model, v, now)
	if st.obstacle == free {
		st = c.takeProbes(v, now)
	}
	if n := c.facts.inFlight.Add(1); st.obstacle == free && c.maxInFlight > 0 && n > c.maxInFlight {
		st = standing{obstacle: busy}
	}
	v.calling = st.obstacle == free
	if !v.calling {
		c.facts.inFlight.Add(-1)
		v.release()
	}
	return st
}

// look says whether the key may be asked for the model, and else names what stands in the way longest. What a visit
// (if there is one) caused itself does not stand in its own way. Where nothing is known it takes no lock.
func (c *credential) look(model string, v *visit, now time.Time) standing {
	if c.named.disabled() {
		return standing{obstacle: disabled}
	}
	st := standing{}
	for _, h := range c.halts() {
		if h.troubled.Load() {
			h.mu.Lock()
			st = st.orLonger(h.bench.standing(halted, v, now))
			h.mu.Unlock()
		}
	}
	if own := v != nil && v.calling; c.maxInFlight > 0 && !own && c.facts.inFlight.Load() >= c.maxInFlight {
		st = st.orLonger(standing{obstacle: busy})
	}
	if c.facts.troubled.Load() {
		c.facts.mu.Lock()
		defer c.facts.mu.Unlock()
		st = st.orLonger(c.lookAtKey(model, v, now))
	}
	return st
}

// halts are the benches that a key shares with others.
func (c *credential) halts() [2]*haltFacts {
	return [2]*haltFacts{&c.provider.facts.haltFacts, &c.account.facts.haltFacts}
}

// lookAtKey is look for what is known of the key itself; the lock is held.
func (c *credential) lookAtKey(model string, v *visit, now time.Time) standing {
	k := c.facts
	if c.provider.pool.policy.lapses {
		k.circuit.lapse(now, nextSequence)
	}
	st := k.rejected.standing(rejected, v, now)
	st = st.orLonger(k.cooldown.standing(cooling, v, now))
	if b, known := k.models[model]; known {
		why := cooling
		if b.reason == ModelUnavailable {
			why = modelGone
		}
		st = st.orLonger(b.standing(why, v, now))
	}
	switch k.circuit.state(now) {
	case circuitOpen:
		if v == nil || v.ownCircuit != k.circuit.changed {
			st = st.orLonger(standing{open, k.circuit.until})
		}
	case circuitHalfOpen:
		if k.circuit.probe != nil && k.circuit.probe != v {
			st = st.orLonger(standing{obstacle: open})
		}
	}
	return st
}

// standing says whether a bench stands in a visit's way: while it lasts, unless the visit caused it, and after that
// while another visit probes whether the trouble is over.
func (b *bench) standing(why obstacle, v *visit, now time.Time) standing {
	switch {
	case b.active(now):
		if v != nil && v.caused(b.changed) {
			return standing{}
		}
		if why == halted && b.reason == RateLimit && b.strikes == 0 {
			why = cooling
		}
		return standing{why, b.until}
	case b.ending(now) && b.probe != nil && b.probe != v:
		return standing{obstacle: why}
	}
	return standing{}
}

// orLonger is whichever of two obstacles lasts longer. One that ends with an event (a probe, a call under way) is
// taken to end soon.
func (s standing) orLonger(other standing) standing {
	if s.obstacle == free || other.obstacle != free && other.until.After(s.until) {
		return other
	}
	return s
}

// takeProbes makes v the probe of whatever needs one.
func (c *credential) takeProbes(v *visit, now time.Time) standing {
	st := standing{}
	take := func(needed bool, slot **visit, why obstacle) {
		switch {
		case !needed:
		case *slot != nil && *slot != v:
			st = standing{obstacle: why}
		default:
			*slot, v.probes, v.probed = v, true, true
		}
	}
	for _, h := range c.halts() {
		if h.troubled.Load() {
			h.update(func(b *bench) { take(b.ending(now), &b.probe, halted) })
		}
	}
	if k := c.facts; k.troubled.Load() {
		k.update(func() {
			take(k.rejected.ending(now), &k.rejected.probe, rejected)
			take(k.circuit.state(now) == circuitHalfOpen, &k.circuit.probe, open)
		})
	}
	return st
}

// release hands back the probe slots that v still holds: an attempt without a verdict says nothing.
func (v *visit) release() {
	if !v.probes {
		return
	}
	v.probes = false
	for _, h := range v.halts() {
		h.update(func(b *bench) {
			if b.probe == v {
				b.probe = nil
			}
		})
	}
	v.facts.update(func() {
		if v.facts.circuit.probe == v {
			v.facts.circuit.probe = nil
		}
		if v.facts.rejected.probe == v {
			v.facts.rejected.probe = nil
		}
	})
}
