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
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// fields tell which key of which request a log line is about.
func (f *failover) fields(extra ...zap.Field) []zap.Field {
	return append([]zap.Field{
		zap.String("pool", f.pool.name),
		zap.String("provider", f.visit.provider.name),
		zap.String("key", f.visit.name),
		zap.Int("attempt", f.trace.attempts),
	}, extra...)
}

// summary tells of the last failure and of the time that failover took.
func (f *failover) summary() []zap.Field {
	last := f.failed[len(f.failed)-1]
	return []zap.Field{
		zap.String("class", string(last.Class)),
		zap.String("reason", last.Reason),
		zap.Duration("waited", f.waited),
		zap.Duration("took", f.pool.clock.Now().Sub(f.in.arrived)),
	}
}

// logAttempt tells of a failed attempt. One that is the request's own fault is no operator's concern.
func (f *failover) logAttempt(x *exchange, next action) {
	level := zapcore.WarnLevel
	if !f.verdict.charged() {
		level = zapcore.InfoLevel
	}
	if c := f.pool.logger.Check(level, "attempt failed"); c != nil {
		c.Write(f.fields(
			zap.String("class", string(f.verdict.Class)),
			zap.String("scope", string(f.verdict.Scope)),
			zap.String("reason", f.verdict.Reason),
			zap.String("rule", f.verdict.Rule),
			zap.Int("status", x.status()),
			zap.Duration("hint", f.verdict.Wait),
			zap.String("next", next.do.String()),
			zap.Duration("wait", next.wait),
			zap.Duration("took", x.clock.Now().Sub(x.begun)),
		)...)
	}
}

// logChange tells of what was set aside or came back.
func (v *visit) logChange(c change) {
	level := zapcore.InfoLevel
	if c.begins {
		level = zapcore.WarnLevel
	}
	message := strings.ReplaceAll(strings.TrimPrefix(c.event, eventPrefix), "_", " ")
	if l := v.provider.pool.logger.Check(level, message); l != nil {
		fields := []zap.Field{
			zap.String("pool", v.provider.pool.name), zap.String("provider", v.provider.name), zap.String("key", v.name),
			zap.String("account", v.account.name), zap.String("target", c.target),
		}
		if c.begins {
			fields = append(fields, zap.String("reason", string(c.reason)), zap.Time("until", c.until))
		}
		l.Write(fields...)
	}
}

// logServed tells of a request that was served after failover.
func (f *failover) logServed(x *exchange) {
	if c := f.pool.logger.Check(zapcore.InfoLevel, "served after failover"); c != nil {
		c.Write(f.fields(append(f.summary(), zap.Int("status", x.status()))...)...)
	}
}

// logGaveUp tells of a request that more than one attempt could not serve.
func (f *failover) logGaveUp() {
	if c := f.pool.logger.Check(zapcore.WarnLevel, "gave up"); c != nil {
		c.Write(f.fields(f.summary()...)...)
	}
}

// logBrokenOff tells of an answer that failed after its first content had gone to the caller.
func (f *failover) logBrokenOff(x *exchange, r *relay) {
	if c := f.pool.logger.Check(zapcore.WarnLevel, "answer broke off after its first content"); c != nil {
		c.Write(f.fields(
			zap.String("class", string(f.verdict.Class)),
			zap.String("reason", f.verdict.Reason),
			zap.Int("bytes", r.bytes),
			zap.Int("events", r.sent),
			zap.Duration("took", x.clock.Now().Sub(x.begun)),
		)...)
	}
}

// String names what is done next.
func (v verb) String() string {
	switch v {
	case stay:
		return "same key"
	case move:
		return "another key"
	default:
		return "give up"
	}
}

// trace is what placeholders and the access log tell of a request.
type trace struct {
	pool, provider, key, model string
	attempts                   int
	class                      Class // of the last failure
}

// MarshalLogObject implements zapcore.ObjectMarshaler, for the access log.
func (t *trace) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("pool", t.pool)
	enc.AddString("provider", t.provider)
	enc.AddString("key", t.key)
	enc.AddInt("attempts", t.attempts)
	if t.class != "" {
		enc.AddString("class", string(t.class))
	}
	return nil
}

// placeholder resolves {http.llm_failover.*}.
func (t *trace) placeholder(name string) (any, bool) {
	switch name {
	case "http.llm_failover.pool":
		return t.pool, true
	case "http.llm_failover.provider":
		return t.provider, true
	case "http.llm_failover.key":
		return t.key, true
	case "http.llm_failover.attempts":
		return t.attempts, true
	case "http.llm_failover.class":
		return string(t.class), true
	case "http.llm_failover.model":
		return t.model, true
	}
	return nil, false
}
