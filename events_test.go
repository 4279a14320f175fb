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
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
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
	if e.Data["panics"] == true {
		panic("as it was asked to")
	}
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

// provisioning is what a site's `llm_failover_test_provision` does while its config is loaded.
var provisioning atomic.Pointer[func() error]

type provisionHook struct{}

func (provisionHook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.llm_failover_test_provision", New: func() caddy.Module { return new(provisionHook) }}
}
func (provisionHook) Provision(caddy.Context) error { return (*provisioning.Load())() }
func (provisionHook) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return next.ServeHTTP(w, r)
}

func init() {
	caddy.RegisterModule(provisionHook{})
	httpcaddyfile.RegisterHandlerDirective("llm_failover_test_provision", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return provisionHook{}, nil
	})
}

// TestWhileAConfigIsLoaded: until a config has started, and if it never does, operators see the one that runs, and that
// one's event handlers hear what happens.
func TestWhileAConfigIsLoaded(t *testing.T) {
	const path = "/v1/chat/completions"
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprintf("it fails: %v", fails), func(t *testing.T) {
			a := newUpstream(t)
			name := strings.ToLower(strings.NewReplacer("/", "-", ":_", "-").Replace(t.Name()))
			site := func(keys ...string) string {
				return "route {\nllm_failover " + a.URL + " {\npool " + name + "\n" + keysOf(keys...) + quick + "}\nllm_failover_test_provision\n}"
			}
			broke := says(402, `{"error":{"message":"Insufficient Balance"}}`)
			quiet := func() error { return nil }
			provisioning.Store(&quiet)
			s := serve(t, site("k1", "k2"))
			s.post(path, chat("m")).want(200, "from-k1")
			a.on("k1", broke)
			series := func(key string) float64 { return metric(s.scrape(), "key_status", "pool", name, "key", key) }
			meanwhile := func() error {
				forgetEvents()
				s.post(path, chat("m")).want(200, "from-k2")
				wantEvents(t, "halted account k1 billing_error")
				if got := s.ask("GET", adminPath+"/"+name).json("pools." + name + ".providers.default.keys.@keys"); got != `["k1","k2"]` {
					t.Errorf("meanwhile the keys are %s", got)
				}
				if series("k1") != 1 || series("k3") != 0 {
					t.Error("metrics tell of what does not run")
				}
				if fails {
					return errors.New("no")
				}
				return nil
			}
			provisioning.Store(&meanwhile)
			if err := s.load(site("k1", "k3")); (err != nil) != fails {
				t.Fatal(err)
			}
			there, gone := "k3", "k2"
			if fails {
				there, gone = gone, there
			}
			if series("k1") != 1 || series(there) != 1 || series(gone) != 0 {
				t.Errorf("metrics tell of k1 %v, %s %v, %s %v", series("k1"), there, series(there), gone, series(gone))
			}
			if got := metric(s.scrape(), "attempts_total", "pool", name, "key", "k1"); got != 2 {
				t.Errorf("%v attempts of k1", got)
			}
			if families := s.scrape()["llm_failover_attempts_total"].GetMetric(); slices.ContainsFunc(families, func(m *dto.Metric) bool {
				return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "key" && l.GetValue() == gone })
			}) {
				t.Errorf("there are still series of %s", gone)
			}
		})
	}
}

// TestWhatOutlivesItsPool: a call that goes on when its pool is gone from the config brings none of its series back, and
// who listens now hears how it ended.
func TestWhatOutlivesItsPool(t *testing.T) {
	f := &families[0]
	goes := make(chan struct{})
	a := newUpstream(t).on("k1", events(f.begin, f.text("x"), until(goes), cut{}))
	site := func(pool string, keys ...string) string {
		return "llm_failover " + a.URL + " {\npool " + pool + "\n" + keysOf(keys...) + "}"
	}
	for _, next := range []string{site("outlived", "k2"), site("other", "k2")} {
		s := serve(t, site("outlived", "k1", "k2"))
		goes = make(chan struct{})
		a.on("k1", events(f.begin, f.text("x"), until(goes), cut{}))
		stream := s.open(s.client, f)
		stream.until("delta")
		s.reload(next)
		forgetEvents()
		close(goes)
		if _, err := stream.rest(); err == nil {
			t.Error("the stream ended well")
		}
		eventually(t, "it is told", func() bool { return len(sink.ours("answer broke off after its first content")) == 1 })
		wantEvents(t, "stream_failed key k1 server_error")
		if got := s.ask(http.MethodGet, "/metrics").body; strings.Contains(got, `key="k1"`) {
			t.Errorf("series of k1 are back:\n%s", got)
		}
		if lines := sink.those("events", "context canceled; event handling stopped"); len(lines) > 0 {
			t.Errorf("%v", lines)
		}
	}
}

// TestSeriesOfARefusedHandler: a handler that is refused half-way leaves no series behind.
func TestSeriesOfARefusedHandler(t *testing.T) {
	a := newUpstream(t)
	site := func(more string) string {
		return "llm_failover {\npool refused\nprovider a " + a.URL + " {\n" + keysOf("k1") + "}\n" + more + "}"
	}
	s := serve(t, site(""))
	before := series(s.scrape())
	if s.load(site("provider other "+a.URL+" {\nkeys {\nghost {env.SECRET_K2}\nnone {env.NOT_SET}\n}\n}\n")) == nil {
		t.Fatal("it was loaded")
	}
	if got := series(s.scrape()); got != before {
		t.Errorf("%d series, %d before", got, before)
	}
}

// TestEventsBeforeTheStart: what happens before a config has started, and so the events app has its subscriptions, is told
// after it, in order. A handler that panics costs nobody anything.
func TestEventsBeforeTheStart(t *testing.T) {
	forgetEvents()
	meanwhile := func() error {
		for n := range 2 * maxEarly {
			pools.current(defaultName).events.emit(eventHalted, map[string]any{"target": "early", "key": n})
		}
		wantEvents(t)
		return nil
	}
	provisioning.Store(&meanwhile)
	serve(t, "route {\nllm_failover https://llm.example {\n"+keysOf("k1")+"}\nllm_failover_test_provision\n}")
	var want []string
	for n := range maxEarly {
		want = append(want, fmt.Sprint("halted early ", n))
	}
	wantEvents(t, want...)
	e := pools.current(defaultName).events
	e.emit(eventHalted, map[string]any{"target": "key", "key": "late"})
	wantEvents(t, "halted key late")
	e.emit(eventHalted, map[string]any{"panics": true})
	if lines := sink.those("", "an event handler panicked"); len(lines) != 1 {
		t.Errorf("%v", lines)
	}
}
