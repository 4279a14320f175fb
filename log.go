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
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/time/rate"
)

// repeats thins out the log lines about a key, so that a storm does not become one of lines: what is said again and
// again of one class is said repeatsAtOnce times in a row, and then repeatsPerSecond times a second.
type repeats struct {
	mu    sync.Mutex
	lines map[lineKind]*repeated
}

type lineKind struct {
	message string
	class   Class
}

type repeated struct {
	limit   *rate.Limiter
	leftOut int // since the last that was said
}

const (
	repeatsAtOnce    = 100
	repeatsPerSecond = 10
)

// admit reports whether a line is written, and how many like it were left out before it.
func (r *repeats) admit(kind lineKind, now time.Time) (leftOut int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.lines[kind]
	if known == nil {
		known = &repeated{limit: rate.NewLimiter(repeatsPerSecond, repeatsAtOnce)}
		if r.lines == nil {
			r.lines = make(map[lineKind]*repeated)
		}
		r.lines[kind] = known
	}
	if !known.limit.AllowN(now, 1) {
		known.leftOut++
		return 0, false
	}
	leftOut, known.leftOut = known.leftOut, 0
	return leftOut, true
}

// log writes a line about the request's key, unless it repeats others.
func (f *failover) log(level zapcore.Level, message string, class Class, reason string, more ...zap.Field) {
	logger := f.pool.logger
	if !logger.Core().Enabled(level) {
		return
	}
	leftOut, ok := f.visit.named.repeated.admit(lineKind{message, class}, f.pool.clock.Now())
	if !ok {
		return
	}
	fields := append([]zap.Field{
		zap.String("pool", f.pool.name),
		zap.String("provider", f.visit.provider.name),
		zap.String("key", f.visit.name),
		zap.Int("attempt", f.trace.attempts),
		zap.String("class", string(class)),
		zap.String("reason", reason),
	}, more...)
	if leftOut > 0 {
		fields = append(fields, zap.Int("left_out", leftOut))
	}
	logger.Log(level, message, fields...)
}

// logAttempt tells of a failed attempt. One that is the request's own fault is no operator's concern.
func (f *failover) logAttempt(x *exchange, next action) {
	level := zapcore.WarnLevel
	if !f.verdict.charged() {
		level = zapcore.InfoLevel
	}
	f.log(level, "attempt failed", f.verdict.Class, f.verdict.Reason,
		zap.String("scope", string(f.verdict.Scope)),
		zap.String("rule", f.verdict.Rule),
		zap.Int("status", x.status()),
		zap.Duration("hint", f.verdict.Wait),
		zap.String("next", next.do.String()),
		zap.Duration("wait", next.wait),
		zap.Duration("took", x.clock.Now().Sub(x.begun)),
	)
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
	f.logEnd(zapcore.InfoLevel, "served after failover", zap.Int("status", x.status()))
}

// logGaveUp tells of a request that more than one attempt could not serve.
func (f *failover) logGaveUp() { f.logEnd(zapcore.WarnLevel, "gave up") }

// logEnd tells how a request ended, of its last failure and of the time that failover took.
func (f *failover) logEnd(level zapcore.Level, message string, more ...zap.Field) {
	last := f.failed[len(f.failed)-1]
	f.log(level, message, last.Class, last.Reason, append(more,
		zap.Duration("waited", f.waited),
		zap.Duration("took", f.pool.clock.Now().Sub(f.in.arrived)),
	)...)
}

// logBrokenOff tells of an answer that failed after its first content had gone to the caller.
func (f *failover) logBrokenOff(x *exchange, r *relay) {
	f.log(zapcore.WarnLevel, "answer broke off after its first content", f.verdict.Class, f.verdict.Reason,
		zap.Int("bytes", r.bytes),
		zap.Int("events", r.sent),
		zap.Duration("took", x.clock.Now().Sub(x.begun)),
	)
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
