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
	"bytes"
	"cmp"
	"net/http"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// keepalive commits a stream's status early, for callers behind load balancers that give up on silence: after an
// interval without a first content the caller gets the headers of a stream, and then a comment each interval, while
// failover still goes on behind. The price is that a failure can be told by an error event only.
//
// It writes from its timer's goroutine; once stop has returned it never writes again.
type keepalive struct {
	w        http.ResponseWriter
	interval time.Duration
	clock    clock

	mu    sync.Mutex
	timer timer
	begun bool
	over  bool
}

// start begins to count. A nil keepalive does nothing at all.
func (k *keepalive) start() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = k.clock.AfterFunc(k.interval, k.beat)
}

func (k *keepalive) beat() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return
	}
	if !k.begun {
		k.begun = true
		k.w.Header().Set("Content-Type", "text/event-stream")
		k.w.Header().Set("Cache-Control", "no-cache")
		k.w.WriteHeader(http.StatusOK)
	}
	if _, err := k.w.Write([]byte(": keepalive\n\n")); err != nil {
		return // the caller has left, which the loop finds out by itself
	}
	_ = http.NewResponseController(k.w).Flush()
	k.timer.Reset(k.interval)
}

// yield ends it for an answer; or reports false and goes on, if the caller has got the headers of a stream and the answer
// is none.
func (k *keepalive) yield(stream bool) bool {
	if k == nil {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.begun && !stream {
		return false
	}
	k.end()
	return true
}

// stop ends it, and reports whether the caller has got the headers of a stream.
func (k *keepalive) stop() (begun bool) {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end()
	return k.begun
}

// end ends it; the lock is held.
func (k *keepalive) end() {
	k.over = true
	if k.timer != nil {
		k.timer.Stop()
	}
}

// fail tells a caller, who has got the headers of a stream, of a failure: by an error event, and a cut transfer.
func (k *keepalive) fail(event []byte) {
	_, _ = k.w.Write(event)
	_ = http.NewResponseController(k.w).Flush()
	panic(http.ErrAbortHandler)
}

// event words a kept failure as an event of a dialect.
func (f *passOn) event(d dialect.Dialect) []byte {
	if d == dialect.Responses { // its error event is no error object
		message := cmp.Or(gjson.GetBytes(f.body, "error.message").String(), "the upstream reported an error")
		return (&refusal{status: f.status, code: codeUpstreamError, message: message}).event(d)
	}
	name := ""
	if d == dialect.Messages {
		name = "event: error\n"
	}
	body := inDialect(f.body, d, f.status)
	event := []byte(name)
	for line := range bytes.FieldsFuncSeq(body, func(r rune) bool { return r == '\n' || r == '\r' }) {
		event = append(append(append(event, "data: "...), line...), '\n')
	}
	return append(event, '\n')
}
