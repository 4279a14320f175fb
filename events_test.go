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
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
)

func init() { caddy.RegisterModule(eventSink{}) }

// heard are the events that eventSink got, as `event target key reason`.
var heard struct {
	mu     sync.Mutex
	events []string
}

// eventSink is the events handler of all tests, which looks for secrets in them.
type eventSink struct{}

func (eventSink) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.llm_failover_test", New: func() caddy.Module { return new(eventSink) }}
}
func (*eventSink) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { d.Next(); return nil }

// Handle implements caddyevents.Handler. It asks for the state, which it could not under a lock.
func (eventSink) Handle(_ context.Context, e caddy.Event) error {
	for _, p := range pools.all() {
		p.view(p.clock.Now())
	}
	heard.mu.Lock()
	defer heard.mu.Unlock()
	leaks.look("an event", fmt.Append(nil, e.Data))
	line := strings.TrimPrefix(e.Name(), "llm_failover_") + fmt.Sprintf(" %v %v %v", e.Data["target"], e.Data["key"], e.Data["reason"])
	heard.events = append(heard.events, strings.TrimSuffix(line, " <nil>"))
	return nil
}

var _ caddyevents.Handler = eventSink{}

// subscriptions are the global options that have eventSink hear all events.
func subscriptions() string {
	var b strings.Builder
	b.WriteString("\tevents {\n")
	for _, name := range []string{eventCircuitOpened, eventCircuitClosed, eventHalted, eventRecovered, eventKeyRejected, eventStreamFailed} {
		fmt.Fprintf(&b, "\t\ton %s llm_failover_test\n", name)
	}
	return b.String() + "\t}\n"
}

func forgetEvents() {
	heard.mu.Lock()
	defer heard.mu.Unlock()
	heard.events = nil
}

func wantEvents(t *testing.T, want ...string) {
	t.Helper()
	heard.mu.Lock()
	defer heard.mu.Unlock()
	if !slices.Equal(heard.events, want) {
		t.Errorf("events:\n%s\nwant:\n%s", strings.Join(heard.events, "\n"), strings.Join(want, "\n"))
	}
	heard.events = nil
}

// TestEvents: one for each change, also after a reload, and none for what changes nothing.
func TestEvents(t *testing.T) {
	const path = "/v1/chat/completions"
	a := newUpstream(t)
	site := "llm_failover " + a.URL + " {\n" + keysOf("k1", "k2") + `
		retry {
			backoff 1ms
			max_retries 0
		}
		circuit {
			threshold 2
			cooldown 50ms
		}
		halt {
			base 50ms
			recheck 50ms
		}
	}`
	s := serve(t, site)
	for _, tc := range []struct {
		what  string
		first reply
		calls int // that find it so
		begin string
		end   string
	}{
		{"a circuit", fails(500, "oops"), 2, "circuit_opened circuit k1 server_error", "circuit_closed circuit k1"},
		{"a rejected key", fails(401, "Incorrect API key provided"), 1, "key_rejected key k1 auth_error", "recovered key k1"},
		{"an account without money", fails(402, "Insufficient balance"), 1, "halted account k1 billing_error", "recovered account k1"},
	} {
		for _, reloaded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reloaded %v", tc.what, reloaded), func(t *testing.T) {
				s.ask("POST", adminPath+"/default/reset").want(200)
				forgetEvents()
				replies := slices.Repeat([]reply{tc.first}, tc.calls)
				a.on("k1", append(replies, ok)...)
				for range tc.calls {
					s.post(path, chat("m"))
				}
				wantEvents(t, tc.begin)
				if reloaded {
					s.reload(site + "\n# again")
				}
				s.post(path, chat("m")).want(200) // k2, which changes nothing
				eventually(t, "k1 serves again", func() bool { return strings.Contains(s.post(path, chat("m")).want(200).body, "k1") })
				wantEvents(t, tc.end)
			})
		}
	}
	t.Run("a stream that fails", func(t *testing.T) {
		f := &families[0]
		a.on("k1", events(f.begin, f.text("x"), cut{}))
		s.post(path, chat("m", streaming))
		wantEvents(t, "stream_failed key k1 server_error")
	})
}
