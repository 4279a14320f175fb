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
	"net/http"
	"testing"
	"time"
)

func TestLogLines(t *testing.T) {
	for _, tc := range []struct {
		name     string
		k1, k2   reply
		status   int
		failed   int
		then     string // the request's own line, if any
		lastWord string // its class
	}{
		{"a success is silent", ok, ok, 200, 0, "", ""},
		{"served after failover", fails(500, "oops"), ok, 200, 1, "served after failover", "server_error"},
		{"in vain", fails(500, "oops"), fails(503, "oops"), 503, 2, "gave up", "server_error"},
		{"one attempt that nobody could help", fails(400, "bad"), ok, 400, 1, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newUpstream(t).on("k1", tc.k1).on("k2", tc.k2)
			s := serve(t, "llm_failover "+a.URL+" {\npool mine\n"+keysOf("k1", "k2")+quick+"}")
			s.post("/v1/chat/completions", chat("m")).want(tc.status)
			attempts := sink.ours("attempt failed")
			if len(attempts) != tc.failed {
				t.Errorf("%d lines about attempts, want %d", len(attempts), tc.failed)
			}
			for i, l := range attempts {
				for name, want := range map[string]string{"pool": "mine", "provider": "default", "key": []string{"k1", "k2"}[i], "attempt": []string{"1", "2"}[i]} {
					if got := l.Get(name).String(); got != want {
						t.Errorf("%s is %q, want %q", name, got, want)
					}
				}
				for _, name := range []string{"class", "scope", "reason", "rule", "status", "hint", "next", "wait", "took"} {
					if !l.Get(name).Exists() {
						t.Errorf("no %s in %s", name, l.Raw)
					}
				}
			}
			n := tc.failed
			if tc.then != "" {
				n++
				lines := sink.ours(tc.then)
				if len(lines) != 1 || lines[0].Get("class").String() != tc.lastWord || lines[0].Get("attempt").Int() != 2 || lines[0].Get("key").String() != "k2" {
					t.Errorf("%q: %v", tc.then, lines)
				}
			}
			if all := sink.ours(""); len(all) != n {
				t.Errorf("%d lines, want %d", len(all), n)
			}
		})
	}
}

// TestPlaceholdersAndAccessLog: other handlers and the access log hear who served, after how many attempts, and why.
func TestPlaceholdersAndAccessLog(t *testing.T) {
	const added = `
	log_append the_pool {http.llm_failover.pool}
	log_append the_key {http.llm_failover.key}
	header >X-Served-By {http.llm_failover.provider}/{http.llm_failover.key}
	header >X-Attempts {http.llm_failover.attempts}
	header >X-Class "<{http.llm_failover.class}>"
	header >X-Model {http.llm_failover.model}
	`
	a := newUpstream(t).on("k1", fails(500, "oops"), ok)
	s := serve(t, added+"llm_failover "+a.URL+" {\npool mine\n"+keysOf("k1", "k2")+quick+"}")
	for i, want := range []struct{ key, attempts, class string }{{"k2", "2", "server_error"}, {"k1", "1", ""}} {
		s.post("/v1/chat/completions", chat("gpt \"x\"")).want(200).wantHeader("X-Served-By", "default/"+want.key, "X-Attempts", want.attempts, "X-Class", "<"+want.class+">", "X-Model", "gpt \"x\"")
		eventually(t, "the access log line", func() bool { return len(sink.those("http.log.access", "handled request")) > i })
		l := sink.those("http.log.access", "handled request")[i]
		for name, value := range map[string]string{
			"llm_failover.pool": "mine", "llm_failover.provider": "default", "llm_failover.key": want.key, "llm_failover.attempts": want.attempts, "llm_failover.class": want.class,
			"the_pool": "mine", "the_key": want.key,
		} {
			if got := l.Get(name).String(); got != value {
				t.Errorf("%s is %q, want %q", name, got, value)
			}
		}
	}
	t.Run("refused", func(t *testing.T) {
		s.ask(http.MethodPost, "/llm_failover/mine/default/k1/disable").want(200)
		s.ask(http.MethodPost, "/llm_failover/mine/default/k2/disable").want(200)
		s.post("/v1/chat/completions", chat("m")).want(503).wantHeader("X-Served-By", "/", "X-Attempts", "0", "X-Class", "<>")
	})
}

// TestRepeatsAreThinnedOut: a storm of one failure is not one of lines; what is another key's, or of another class, is said anyway.
func TestRepeatsAreThinnedOut(t *testing.T) {
	var (
		r     repeats
		start = time.Now()
		said  = lineKind{"attempt failed", ServerError}
		lines = func(n int, after time.Duration) (written, leftOut int) {
			for range n {
				if out, ok := r.admit(said, start.Add(after)); ok {
					written++
					leftOut += out
				}
			}
			return written, leftOut
		}
	)
	if n, out := lines(1000, 0); n != repeatsAtOnce || out != 0 {
		t.Errorf("%d lines of 1000, with %d left out", n, out)
	}
	if _, ok := r.admit(lineKind{"attempt failed", Timeout}, start); !ok {
		t.Error("another failure is left out")
	}
	if n, out := lines(1000, time.Second); n != repeatsPerSecond || out != 1000-repeatsAtOnce {
		t.Errorf("a second later %d lines of 1000, with %d left out", n, out)
	}
	if n, out := lines(1, time.Minute); n != 1 || out != 1000-repeatsPerSecond {
		t.Errorf("a minute later %d lines, with %d left out", n, out)
	}
}

// TestStormOfOneFailure: every attempt of a storm is counted, few are told of, and the transition is.
func TestStormOfOneFailure(t *testing.T) {
	a := newUpstream(t).on("k1", fails(400, "bad"))
	site := "llm_failover " + a.URL + " {\n" + keysOf("k1") + quick + "}"
	s := serve(t, site)
	const asked = 3 * repeatsAtOnce
	began := time.Now()
	for n := range asked {
		if n == asked/2 {
			s.reload(site + "\n# again") // it forgets nothing
		}
		s.post("/v1/chat/completions", chat("m")).want(400)
	}
	lines := sink.ours("attempt failed")
	told := len(lines)
	for _, l := range lines {
		told += int(l.Get("left_out").Int())
	}
	most := repeatsAtOnce + int(repeatsPerSecond*time.Since(began).Seconds()) + 1
	if len(lines) < repeatsAtOnce || len(lines) > most || told > asked {
		t.Errorf("%d lines that tell of %d failures, for %d", len(lines), told, asked)
	}
	a.on("k1", fails(402, "Insufficient Balance"))
	s.post("/v1/chat/completions", chat("m"))
	if got := len(sink.ours("halted")); got != 1 {
		t.Errorf("%d lines about the halt", got)
	}
}
