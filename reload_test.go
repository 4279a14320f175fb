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
	"net/http"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// knownFacts lists what outlives reloads, with the number of references to each.
func knownFacts() map[factKey]int {
	known := make(map[factKey]int)
	facts.Range(func(key, _ any) bool {
		known[key.(factKey)] = 0
		return true
	})
	for key := range known {
		known[key], _ = facts.References(key)
	}
	return known
}

// wantReferences checks that each entry is held as often as it is used.
func wantReferences(t *testing.T, each int) {
	t.Helper()
	eventually(t, "the references balance", func() bool {
		for _, n := range knownFacts() {
			if n != each {
				return false
			}
		}
		return true
	})
}

// steady takes what counts down out of a state.
func steady(state string) string {
	var keep []string
	for line := range strings.SplitSeq(gjson.Get(state, "@pretty").Raw, "\n") {
		if !strings.Contains(line, "remaining_ms") {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "\n")
}

func TestReloadsKeepWhatIsKnown(t *testing.T) {
	a := newUpstream(t).on("k1", fails(500, "oops")).on("k2", fails(402, "Insufficient Balance")).on("k3", fails(401, "Incorrect API key provided")).
		on("k4", limited("Retry-After", "200"))
	b := newUpstream(t)
	b.Close()
	site := func(more string, keys ...string) string {
		return fmt.Sprintf("llm_failover {\nprovider A %s {\n%s}\nprovider B %s {\n%s}\n%scircuit {\nthreshold 1\n}\n%s}", a.URL, keysOf(keys...), b.URL, keysOf("b1"), quick, more)
	}
	all := []string{"k1", "k2", "k3", "k4", "k5"}
	s := serve(t, site("", all...))
	s.post("/v1/chat/completions", chat("m")).want(200, "from-k5")
	s.ask(http.MethodPost, "/llm_failover/default/A/k5/disable").want(200)
	a.on("k5", ok)
	s.post("/v1/chat/completions", chat("m")) // to B
	s.wantState("A.keys.k1.status", "open", "A.accounts.k2.halt.reason", "billing_error", "A.keys.k3.status", "rejected", "A.keys.k4.cooldown.reason", "rate_limit", "A.keys.k5.status", "disabled",
		"B.halt.reason", "provider_unavailable")
	before := steady(s.ask(http.MethodGet, "/llm_failover").body)
	calls := len(a.asked(""))

	for i := range 3 {
		s.reload(site(fmt.Sprintf("select %s\n", []string{"first", "round_robin", "random"}[i]), all...))
		if after := steady(s.ask(http.MethodGet, "/llm_failover").body); after != before {
			t.Errorf("after reload %d:\n%s\nwas\n%s", i, after, before)
		}
		for _, bad := range []string{
			site("explode\n", all...), // does not parse
			site("", append(all, "none")...),
			site("", all...) + "\nno_such_directive",
			site("", all...) + "\nroute {\nllm_failover /x " + a.URL + " {\nkeys {\nk9 {env.SECRET_NONE}\n}\npool other\n}\n}", // fails after this pool was provisioned
		} {
			if err := s.load(bad); err == nil {
				t.Error("loaded:", bad)
			}
			if after := steady(s.ask(http.MethodGet, "/llm_failover").body); after != before {
				t.Errorf("after a refused load:\n%s\nwas\n%s", after, before)
			}
		}
	}
	s.post("/v1/chat/completions", chat("m")).want(503)
	if n := len(a.asked("")); n != calls {
		t.Error("somebody was asked")
	}
	wantReferences(t, 1)

	s.reload(site("", "k2", "k4")) // the others are forgotten
	s.reload(site("", all...))
	s.wantState("A.keys.k1.status", "available", "A.accounts.k2.halt.reason", "billing_error", "A.keys.k3.status", "available", "A.keys.k4.cooldown.reason", "rate_limit", "A.keys.k5.status", "available")

	t.Run("a new secret starts clean", func(t *testing.T) {
		s.post("/v1/chat/completions", chat("m")).want(200, "from-k5") // k1 open, k3 rejected again
		s.wantState("A.keys.k1.status", "open", "A.keys.k3.status", "rejected")
		t.Setenv("SECRET_K1", secretOf("other"))
		s.reload(site("select round_robin\n", all...))
		s.wantState("A.keys.k1.status", "available", "A.keys.k1.totals.attempts", "0", "A.keys.k3.status", "rejected", "A.accounts.k2.halt.reason", "billing_error")
		s.reload(site("select random\n", "k1"))
		s.post("/v1/chat/completions", chat("m")).want(200, "from-other")
	})
}

// TestReloadUnderLoad: callers notice nothing of reloads, also of such that are refused; nothing is left behind.
func TestReloadUnderLoad(t *testing.T) {
	const callers, reloads = 200, 20
	tick := make(chan struct{})
	f := &families[0]
	a := newUpstream(t).on("k1", fails(500, "oops")).on("k3", events(f.begin, f.text("one"), until(tick), f.text("two"), f.end))
	b := newUpstream(t)
	site := func(i int) string {
		return fmt.Sprintf("@slow header X-Slow 1\nhandle @slow {\nllm_failover %s {\npool slow\n%s}\n}\nhandle {\n%s\n}\nheader X-Reload %d", a.URL, keysOf("k3"),
			two(a, b, "circuit {\nthreshold 100000\n}\nretry {\nbackoff 1ms\n}"), i)
	}
	s := serve(t, site(0))
	before := runtime.NumGoroutine()

	var streams sync.WaitGroup
	var running atomic.Int32
	for range 10 {
		streams.Go(func() {
			r := s.request(http.MethodPost, f.path, strings.NewReader(f.request), "X-Slow", "1")
			res, err := s.two.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			running.Add(1)
			got := &received{t: t}
			got.read(res)
			if got.body != f.begin+f.text("one")+f.text("two")+f.end || got.err != nil {
				t.Error(got.err, got.body)
			}
		})
	}
	eventually(t, "the streams run", func() bool { return running.Load() == 10 })

	ctx, enough := context.WithCancel(context.Background())
	var load sync.WaitGroup
	var served, lost atomic.Int64
	// Each call has a connection of its own, as the old server may close one that is idle just when it is used.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for i := range callers {
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				body := chat("m")
				if (i+n)%2 == 0 {
					body = chat("m", streaming)
				}
				got := s.do(client, s.request(http.MethodPost, f.path, chunked{strings.NewReader(body)})) // which do cannot send again
				if got.status == 0 {                                                                      // it did not come as far as a handler; the access log proves it
					lost.Add(1)
					continue
				}
				got.want(200, "from-")
				served.Add(1)
			}
		})
	}
	for i := range reloads {
		seen := served.Load()
		if i%4 == 3 {
			if err := s.load(site(i) + "\nroute {\nllm_failover /x " + a.URL + " {\npool other\nkeys {\nk9 {env.SECRET_NONE}\n}\n}\n}"); err == nil {
				t.Error("a bad config was loaded")
			}
		} else {
			s.reload(site(i + 1))
		}
		eventually(t, "calls are served", func() bool { return served.Load() > seen+callers/4 })
	}
	if got := s.state("slow.providers.default.keys.k3.in_flight"); got != "10" {
		t.Error("streams under way:", got)
	}
	close(tick)
	streams.Wait()
	enough()
	load.Wait()
	for _, path := range []string{"slow.providers.default.keys.k3", "default.providers.A.keys.k1", "default.providers.A.keys.k2", "default.providers.B.keys.b1"} {
		eventually(t, path+" is idle", func() bool { return s.state(path+".in_flight") == "0" })
	}
	if total := s.state("default.providers.A.keys.k1.totals.attempts"); total != fmt.Sprint(len(a.asked("k1"))) {
		t.Errorf("totals count %s calls of %d", total, len(a.asked("k1")))
	}
	// Connections that the old listener has not accepted when it closes are reset by the kernel; that is so for any
	// handler of Caddy. What reached ours was served.
	t.Logf("%d calls served, %d connections lost by the listeners", served.Load(), lost.Load())
	reached := func() (n int) {
		for _, l := range sink.those("http.log.access", "handled request") {
			if status := l.Get("status").Int(); status != 200 {
				t.Error(l.Raw)
			}
			n++
		}
		return n
	}
	eventually(t, "all calls are logged", func() bool { return reached() == int(served.Load())+10 })
	s.client.CloseIdleConnections()
	s.two.CloseIdleConnections()
	client.CloseIdleConnections()
	wantReferences(t, 1)
	pools.mu.RLock()
	for name, all := range pools.handlers {
		if len(all) != 1 {
			t.Errorf("pool %s has %d handlers", name, len(all))
		}
	}
	pools.mu.RUnlock()
	s.reload("respond ok") // lets go of the upstream connections
	eventually(t, "goroutines are as few as before", func() bool { return runtime.NumGoroutine() <= before+15 })
	if n := runtime.NumGoroutine(); n > before+15 {
		var text strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&text, 1)
		t.Errorf("%d goroutines, were %d:\n%s", n, before, text.String())
	}
}

func TestStopForgetsAll(t *testing.T) {
	a := newUpstream(t)
	t.Run("run", func(t *testing.T) { serve(t, pair(a)).post("/v1/chat/completions", chat("m")).want(200) })
	eventually(t, "nothing is known", func() bool { return len(knownFacts()) == 0 })
	pools.mu.RLock()
	defer pools.mu.RUnlock()
	if len(pools.handlers) > 0 {
		t.Error(pools.handlers)
	}
}
