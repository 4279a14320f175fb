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

// record is what a verdict does to memory. It runs before anything is decided. The only thing that waits is the halt
// of a provider whose keys are all limited (see recordLeft): it would stop the very request that may still wait.
func (v *visit) record(verdict Verdict, status int, othersCanServe func() bool, now time.Time) {
	defer v.tell()
	pol := &v.provider.pool.policy
	if !verdict.charged() {
		if verdict.Class == EmptyResponse { // nobody's fault, but an operator may have the circuit count it
			v.facts.update(func() { v.recordFault(verdict.Class, now) })
		}
		return
	}
	v.facts.failures.Add(1)
	verdict.Wait = min(verdict.Wait, pol.maxCooldown)

	switch verdict.Scope {
	case ScopeProvider:
		v.recordProvider(verdict, othersCanServe, now)
	case ScopeAccount:
		v.recordAccount(verdict, now)
	}
	v.facts.update(func() {
		k := v.facts
		k.lastError = lastError{verdict.Class, status, now}
		v.recordFault(verdict.Class, now)
		switch verdict.Scope {
		case ScopeKey:
			v.recordKey(verdict, now)
		case ScopeModel:
			v.recordModel(verdict, now)
		}
	})
}

// recordFault counts a fault of a class that the circuit counts, once a visit.
func (v *visit) recordFault(class Class, now time.Time) {
	pol, c := &v.provider.pool.policy, &v.facts.circuit
	if !pol.circuitOn[class] || v.charged {
		return
	}
	v.charged = true
	if c.fault(class, v.started, now, pol.threshold, pol.cooldown, nextSequence) {
		v.ownCircuit = c.changed
		v.changed(change{event: eventCircuitOpened, target: targetCircuit, begins: true, reason: class, until: c.until})
	}
}

// recordProvider benches the whole provider.
func (v *visit) recordProvider(verdict Verdict, othersCanServe func() bool, now time.Time) {
	pol := &v.provider.pool.policy
	base, limit := pol.haltBase, pol.haltMax
	switch verdict.Class.Parent() {
	case ServerError: // overloaded: a rest, and only where another provider can serve meanwhile
		if !othersCanServe() {
			return
		}
		base, limit = pol.overload, pol.overloadCap
	case RateLimit: // an edge's limit, for all that come from this address
		if verdict.Wait > 0 {
			v.provider.facts.update(func(b *bench) { v.rest(b, targetProvider, verdict, now) })
			return
		}
		base, limit = pol.limitedHalt, pol.limitedHalt
	}
	v.provider.facts.update(func(b *bench) { v.halt(b, targetProvider, verdict, now, base, limit) })
}

// recordAccount benches all keys that share the bill.
func (v *visit) recordAccount(verdict Verdict, now time.Time) {
	pol := &v.provider.pool.policy
	v.account.facts.update(func(b *bench) {
		if verdict.Class == RateLimit {
			if verdict.Wait > 0 {
				v.rest(b, targetAccount, verdict, now)
			}
			return
		}
		v.halt(b, targetAccount, verdict, now, pol.haltBase, pol.haltMax)
	})
}

// recordKey benches the key. What the circuit counts is benched through the circuit; a limit with a hint also until then.
func (v *visit) recordKey(verdict Verdict, now time.Time) {
	pol, k := &v.provider.pool.policy, v.facts
	switch verdict.Class {
	case RateLimit:
		if verdict.Wait > 0 {
			v.rest(&k.cooldown, targetKey, verdict, now)
			k.limited = bench{}
			return
		}
		verdict.Wait = pol.limitedHalt
		k.limited.rest(verdict, v.started, now, nextSequence)
	case AuthError:
		v.halt(&k.rejected, targetKey, verdict, now, pol.recheck, pol.recheck)
	case QuotaExhausted, BillingError:
		if verdict.Wait <= 0 {
			verdict.Wait = pol.haltBase
		}
		v.rest(&k.cooldown, targetKey, verdict, now)
	}
}

// rest benches for as long as the upstream said. The visit may still wait for that itself.
func (v *visit) rest(b *bench, target string, verdict Verdict, now time.Time) {
	if b.rest(verdict, v.started, now, nextSequence) {
		v.own = append(v.own, b.changed)
		v.changed(change{target: target, begins: true, reason: verdict.Class, until: b.until})
	}
}

// halt adds a strike, if the attempt may. A key that is halted is rejected.
func (v *visit) halt(b *bench, target string, verdict Verdict, now time.Time, base, limit time.Duration) {
	before := b.changed
	b.halt(verdict, v.started, now, base, limit, nextSequence)
	if b.changed == before {
		return
	}
	event := eventHalted
	if target == targetKey {
		event = eventKeyRejected
	}
	v.changed(change{event: event, target: target, begins: true, reason: b.reason, until: b.until})
}

// recordModel benches one model of the key.
func (v *visit) recordModel(verdict Verdict, now time.Time) {
	pol := &v.provider.pool.policy
	if verdict.Wait <= 0 {
		switch verdict.Class.Parent() {
		case ModelUnavailable:
			verdict.Wait = pol.modelBench
		case BillingError:
			verdict.Wait = pol.haltBase
		default: // a limit without a hint benches nothing
			return
		}
	}
	v.facts.benchModel(v.model, now, func(b *bench) { v.rest(b, targetModel, verdict, now) })
}

// recordLeft halts the provider if the request leaves the last of its keys limited, and no upstream said until when.
func (v *visit) recordLeft(verdict Verdict, now time.Time) {
	if verdict.Class != RateLimit || verdict.Scope != ScopeKey {
		return
	}
	for _, c := range v.provider.keys {
		limited := false
		if !c.named.disabled() && c.facts.troubled.Load() {
			c.facts.update(func() { limited = c.facts.rejected.reason == "" && c.facts.limited.active(now) })
		}
		if paying := c.account.facts.look(); !limited || paying.active(now) {
			return
		}
	}
	pol := &v.provider.pool.policy
	v.provider.facts.update(func(b *bench) {
		v.halt(b, targetProvider, Verdict{Class: RateLimit}, now, pol.limitedHalt, pol.limitedHalt)
	})
	v.tell()
}

// recordSuccess clears what the key's, its account's and its provider's success disproves. Where nothing is known
// against them it takes no lock.
func (v *visit) recordSuccess(now time.Time) {
	v.provider.facts.budget.earn(v.provider.pool.policy.budget, now)
	for i, h := range v.halts() {
		if h.troubled.Load() {
			h.update(func(b *bench) {
				if b.clear(v.started, nextSequence) {
					h.recovered.Store(now.UnixNano())
					v.changed(change{event: eventRecovered, target: [...]string{targetProvider, targetAccount}[i]})
				}
			})
		}
	}
	defer v.tell()
	if !v.facts.troubled.Load() {
		return
	}
	v.facts.update(func() {
		k := v.facts
		closed, accepted := k.circuit.success(v.started, nextSequence), k.rejected.clear(v.started, nextSequence)
		if closed || accepted {
			k.recovered.Store(now.UnixNano())
		}
		if closed {
			v.changed(change{event: eventCircuitClosed, target: targetCircuit})
		}
		if accepted {
			v.changed(change{event: eventRecovered, target: targetKey})
		}
		k.cooldown.clear(v.started, nextSequence)
		k.limited.clear(v.started, nextSequence)
		for model, b := range k.models {
			if model == v.model {
				b.clear(v.started, nextSequence)
			}
			if b.reason == "" || !b.active(now) {
				delete(k.models, model)
				continue
			}
			k.models[model] = b
		}
	})
}
