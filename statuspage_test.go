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
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// statusSite is a site with the page at /status.
func statusSite(upstream string, more string, keys ...string) string {
	return fmt.Sprintf("llm_failover_status /status\nllm_failover %s {\n%s%scircuit {\nthreshold 1\n}\n%s}", upstream, keysOf(keys...), quick, more)
}

// get asks for a path.
func (s *server) get(path string, headers ...string) *received {
	return s.do(s.client, s.request(http.MethodGet, path, nil, headers...))
}

// rowOf is the part of a page about a key, without its tags.
func rowOf(t *testing.T, page, key string) string {
	t.Helper()
	for body := range strings.SplitSeq(page, "<tbody") {
		if row, _, _ := strings.Cut(body, "</tbody>"); strings.Contains(row, " / "+key+"</b>") {
			return strings.Join(strings.Fields(regexp.MustCompile("<[^>]*>").ReplaceAllString("<"+row, " ")), " ")
		}
	}
	t.Errorf("no key %s in %s", key, page)
	return ""
}

func TestStatusPageShowsWhatIsDead(t *testing.T) {
	a := newUpstream(t).on("k1", fails(500, "oops")).on("k2", fails(402, "Insufficient Balance")).on("k3", fails(401, "Incorrect API key provided")).
		on("k4", limited("Retry-After", "200"))
	s := serve(t, statusSite(a.URL, "", "k5", "k1", "k2", "k3", "k4"))
	all := s.get("/status").want(200, "<h1", "all keys free")
	if row := rowOf(t, all.body, "k5"); !strings.Contains(row, "available") {
		t.Error(row)
	}
	s.ask(http.MethodPost, "/llm_failover/default/default/k5/disable").want(200)
	s.post("/v1/chat/completions", chat("m"))
	s.post("/v1/chat/completions", chat("m"))
	page := s.get("/status").want(200, "no key free").body
	for key, words := range map[string][]string{
		"k1": {"open server_error", "ago", "in ", "1 of 1", "server_error 500"},
		"k2": {"account halted billing_error", "ago", "in ", "1 of 1", "billing_error 402"},
		"k3": {"rejected auth_error", "ago", "in 10m", "1 of 1", "auth_error 401"},
		"k4": {"cooling rate_limit (hint 200)", "ago", "in 3m", "rate_limit 429"},
		"k5": {"disabled by an operator", "enabled", "0 of 0"},
	} {
		row := rowOf(t, page, key)
		for _, w := range words {
			if !strings.Contains(row, w) {
				t.Errorf("%s: no %q in %s", key, w, row)
			}
		}
		if sum := s.state("default.providers.default.keys." + key + ".fingerprint"); !strings.Contains(row, sum) {
			t.Errorf("%s: not %s in %s", key, sum, row)
		}
	}
	if dead, off := strings.Index(page, " / k3</b>"), strings.Index(page, " / k5</b>"); dead > off {
		t.Error("what is dead does not come first")
	}
	s.ask(http.MethodPost, "/llm_failover/default/default/k5/enable").want(200)
	s.get("/status").want(200, "1 of 5 keys free")
}

func TestStatusPageAnswers(t *testing.T) {
	a := newUpstream(t)
	s := serve(t, statusSite(a.URL, "", "k1")+"\nllm_failover_status /elsewhere")
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodPatch} {
		s.do(s.client, s.request(method, "/status", nil)).want(405).wantHeader("Allow", "GET, HEAD", "Cache-Control", "no-store")
		s.do(s.client, s.request(method, "/status?events", nil)).want(405)
	}
	page := s.get("/status").want(200).wantHeader("Content-Type", "text/html; charset=utf-8", "Cache-Control", "no-store", "X-Content-Type-Options", "nosniff", "Referrer-Policy", "no-referrer")
	for path, contentType := range map[string]string{"/status": "text/html; charset=utf-8", "/status?events": "text/event-stream"} {
		if head := s.do(s.client, s.request(http.MethodHead, path, nil)).want(200).wantHeader("Content-Type", contentType); head.body != "" {
			t.Error(head.body)
		}
	}
	if other := s.get("/elsewhere").want(200, "k1"); !strings.Contains(other.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Error(other.header)
	}
	// The policy lets in the page's own style and script, and there is nothing else that it would have to let in.
	policy := page.header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; ") {
		t.Error(policy)
	}
	for _, tag := range []string{"style", "script"} {
		found := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(page.body, -1)
		if len(found) != 1 {
			t.Fatalf("%d times %s", len(found), tag)
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		if want := tag + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, want) {
			t.Errorf("no %s in %s", want, policy)
		}
	}
	if outside := regexp.MustCompile(`\s(?:src|href|action|style|on\w+)="[^"]*"`).FindAllString(page.body, -1); len(outside) != 1 || outside[0] != ` href="data:,"` {
		t.Error(outside)
	}
}

// TestStatusPageEscapes: names come from the config, models from callers.
func TestStatusPageEscapes(t *testing.T) {
	a := newUpstream(t).on("k1", fails(404, "The model does not exist"))
	s := serve(t, fmt.Sprintf("llm_failover_status /status\nllm_failover {\npool <b>&pool\nprovider <i>p %s {\n%s}\n%s}", a.URL, keysOf("k1"), quick))
	s.post("/v1/chat/completions", chat(`<script>alert("m")</script>`))
	s.get("/status").want(200, "&lt;b&gt;&amp;pool", "&lt;i&gt;p", "model &lt;script&gt;", "benched").lacks("<script>alert", "<b>&pool", "<i>p")
	w := s.watchStatus("/status?events=page")
	defer w.close()
	if html := w.next().Get("html").String(); !strings.Contains(html, "model &lt;script&gt;") || strings.Contains(html, "<script>") {
		t.Error(html)
	}
}

// watcher reads a stream of events.
type watcher struct {
	s     *server
	res   *http.Response
	lines *bufio.Scanner
	leave context.CancelFunc
}

func (s *server) watchStatus(path string, headers ...string) *watcher {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	res, err := s.client.Do(s.request(http.MethodGet, path, nil, headers...).WithContext(ctx))
	if err != nil {
		s.t.Fatal(err)
	}
	if ct := res.Header.Get("Content-Type"); res.StatusCode != 200 || ct != "text/event-stream" {
		s.t.Errorf("%d %s", res.StatusCode, ct)
	}
	w := &watcher{s: s, res: res, lines: bufio.NewScanner(res.Body), leave: cancel}
	w.lines.Buffer(nil, 1<<20)
	return w
}

// next returns the next event's data; nothing, where the stream has ended.
func (w *watcher) next() gjson.Result {
	for w.lines.Scan() {
		if data, ok := strings.CutPrefix(w.lines.Text(), "data: "); ok {
			leaks.look("event", []byte(data))
			return gjson.Parse(data)
		}
	}
	return gjson.Result{}
}

func (w *watcher) close() {
	w.leave()
	w.res.Body.Close()
}

func TestStatusPageEvents(t *testing.T) {
	a := newUpstream(t).on("k1", fails(402, "Insufficient Balance"))
	s := serve(t, "encode gzip\n"+statusSite(a.URL, "", "k1", "k2"))
	for _, w := range []*watcher{s.watchStatus("/status?events"), s.watchStatus("/status", "Accept", "text/event-stream"), s.watchStatus("/status?events=page", "Accept-Encoding", "identity")} {
		defer w.close()
		const halt = "pools.default.providers.default.accounts.k1.halt.reason"
		first := w.next()
		if got := first.Get("pools.default.providers.default.keys.k1.status").String(); got != "available" {
			t.Errorf("%q in %.300s", got, first.Raw)
		}
		s.post("/v1/chat/completions", chat("m")).want(200, "from-k2")
		var news gjson.Result
		begun := time.Now()
		for range 4 {
			if news = w.next(); news.Get(halt).Exists() && news.Get("pools.default.rates.attempts_per_second").Float() > 0 {
				break
			}
		}
		if took := time.Since(begun); news.Get(halt).String() != "billing_error" || took > 4*time.Second {
			t.Errorf("after %v: %.600s", took, news.Raw)
		}
		if rate := news.Get("pools.default.rates"); rate.Get("attempts_per_second").Float() <= 0 || rate.Get("failures_per_second").Float() <= 0 {
			t.Error("rates:", rate.Raw)
		}
		html := news.Get("html").String()
		if asked := w.res.Request.URL.RawQuery == "events=page"; asked != strings.Contains(html, `class="failures" d="M`) {
			t.Errorf("%q", html)
		}
		s.ask(http.MethodPost, "/llm_failover/default/reset").want(200)
		w.next() // so that the next watcher sees none of this
		w.next()
	}
}

// TestStatusPageReload: a new config ends the streams of the old one, and no goroutine stays.
func TestStatusPageReload(t *testing.T) {
	a := newUpstream(t)
	s := serve(t, statusSite(a.URL, "", "k1"))
	first := s.watchStatus("/status?events")
	defer first.close()
	first.next()
	first.next()
	if err := s.load(statusSite(a.URL, "explode\n", "k1")); err == nil {
		t.Error("loaded")
	}
	if err := s.load(statusSite(a.URL, "", "k1") + "\nllm_failover_status /x {\n}\nroute {\nllm_failover /y " + a.URL + " {\npool other\nkeys {\nk9 {env.SECRET_NONE}\n}\n}\n}"); err == nil {
		t.Error("loaded")
	}
	if !first.next().Exists() {
		t.Error("a refused config ended the stream")
	}
	s.reload(statusSite(a.URL, "", "k1", "k2"))
	for n := 0; first.next().Exists(); n++ {
		if n > 2 {
			t.Fatal("the stream goes on")
		}
	}
	if err := first.lines.Err(); err != nil {
		t.Error("it did not end properly:", err)
	}
	second := s.watchStatus("/status?events")
	defer second.close()
	if news := second.next(); !news.Get("pools.default.providers.default.keys.k2").Exists() || !news.Get("pools.default.rates").Exists() {
		t.Errorf("the new pool, or what was known of the old, is missing in %s", news.Raw)
	}
	second.close()
	wantNoWatcher(t)
	if n, ok := statusBoards.References(statusBoardKey); n != 1 || !ok {
		t.Errorf("%d references", n)
	}
	s.reload("respond hello")
	if n, ok := statusBoards.References(statusBoardKey); ok {
		t.Errorf("%d references", n)
	}
}

// wantNoWatcher waits until no goroutine is about the page.
func wantNoWatcher(t *testing.T) {
	t.Helper()
	eventually(t, "no goroutine is left", func() bool {
		all := make([]byte, 8<<20)
		all = all[:runtime.Stack(all, true)]
		return !strings.Contains(string(all), "(*StatusPage)") && !strings.Contains(string(all), "(*statusBoard)")
	})
}

func TestStatusPageWatchersAreBounded(t *testing.T) {
	a := newUpstream(t)
	s := serve(t, statusSite(a.URL, "", "k1"))
	var all []*watcher
	for range maxWatchers {
		w := s.watchStatus("/status?events")
		defer w.close()
		w.next()
		all = append(all, w)
	}
	s.get("/status?events").want(503).wantHeader("Retry-After", "10")
	s.get("/status").want(200)
	all[7].close()
	eventually(t, "a place is free", func() bool {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		res, err := s.client.Do(s.request(http.MethodGet, "/status?events", nil).WithContext(ctx))
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	for _, w := range all {
		w.close()
	}
	wantNoWatcher(t)
}

// TestStatusPageTwoSites: each page shows the pools of all sites.
func TestStatusPageTwoSites(t *testing.T) {
	a := newUpstream(t).on("k2", fails(402, "Insufficient Balance"))
	s := serve(t, statusSite(a.URL, "pool one\n", "k1"))
	other := freeAddress(t)
	config := fmt.Sprintf("%s {\n%s\n}\nhttp://%s {\n%s\n}\n", s.url, statusSite(a.URL, "pool one\n", "k1"), other, statusSite(a.URL, "pool two\n", "k2"))
	if err := loadCaddyfile(s.admin, config); err != nil {
		t.Fatal(err)
	}
	s.loaded.Store(true)
	here := s.url
	s.url = "http://" + other
	s.post("/v1/chat/completions", chat("m")).want(402)
	for _, s.url = range []string{here, "http://" + other} {
		s.loaded.Store(true)
		page := s.get("/status").want(200, "1 of 2 keys free").body
		if one, two := strings.Index(page, `<section aria-label="pool one">`), strings.Index(page, `<section aria-label="pool two">`); two < 0 || one < two {
			t.Error("the pool without a key does not come first:", one, two)
		}
		if row := rowOf(t, page, "k2"); !strings.Contains(row, "account halted billing_error") {
			t.Error(row)
		}
	}
	s.url = here
}

func TestStatusPageCaddyfile(t *testing.T) {
	for input, want := range map[string]string{
		":80 {\nllm_failover_status /status\n}":            "",
		":80 {\nllm_failover_status /status {\n}\n}":       "",
		":80 {\nllm_failover_status\nrespond hi\n}":        "",
		":80 {\nllm_failover_status /status fast\n}":       `llm_failover_status: unknown word "fast"; it has no options`,
		":80 {\nllm_failover_status {\ninterval 5s\n}\n}":  `llm_failover_status: unknown word "interval"; it has no options`,
		":80 {\nllm_failover_status /a {\n\n\nb\n}\n}":     "Caddyfile:5",
		":80 {\nllm_failover_status /status /elsewhere\n}": "Caddyfile:2",
	} {
		_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(input), map[string]any{"filename": "Caddyfile"})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v for\n%s", err, input)
		}
	}
	config, err := adapt(t, ":80 {\nllm_failover https://llm.example {\nkeys {\nk1 {env.K1}\n}\n}\nreverse_proxy localhost:1\nllm_failover_status\nbasic_auth {\nbob $2a$14$x\n}\n}")
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, m := range regexp.MustCompile(`"handler":"(\w+)"`).FindAllStringSubmatch(string(config), -1) {
		order = append(order, m[1])
	}
	if got := strings.Join(order, " "); got != "authentication llm_failover_status llm_failover reverse_proxy" {
		t.Error(got)
	}
}

// TestStatusHistories: what is remembered does not grow, and says what was.
func TestStatusHistories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b statusBoard
		totals := map[string]totalsView{"k1": {}, "k2": {100, 100}}
		look := func() *poolStatus {
			keys := make(map[string]keyView)
			for name, tv := range totals {
				keys[name] = keyView{Totals: tv}
			}
			p := &poolStatus{poolView: poolView{map[string]providerView{"x": {Keys: keys}}}}
			b.note(time.Now(), map[string]*poolStatus{"p": p})
			return p
		}
		if p := look(); p.Rates != nil {
			t.Error("rates of nothing:", p.Rates)
		}
		want := func(p *poolStatus, attempts, failures float64) {
			t.Helper()
			if p.Rates == nil || *p.Rates != (ratesView{attempts, failures}) {
				t.Error("rates:", p.Rates)
			}
		}
		for i := range 1000 {
			time.Sleep(time.Second)
			totals["k1"] = totalsView{uint64(i+1) * 4, uint64(i+1) * 2}
			p := look()
			want(p, 4, 2)
			if got := p.KeyRates["x"]["k2"]; got == nil || *got != (ratesView{}) {
				t.Error("k2:", got)
			}
		}
		totals["k2"] = totalsView{2, 1} // a new secret
		time.Sleep(time.Second)
		if p := look(); p.Rates.Attempts < 0 || p.Rates.Attempts > 5 {
			t.Error(p.Rates)
		}
		again := look() // at once: no sample
		plot := newPlotPane(&again.bars, time.Now())
		if n := strings.Count(plot.Attempts, "M"); n != plotBars {
			t.Errorf("%d bars", n)
		}
		time.Sleep(time.Hour) // nobody looks
		totals["k1"] = totalsView{1 << 40, 0}
		p := look()
		if p.Rates != nil {
			t.Error("what nobody saw:", p.Rates)
		}
		if plot := newPlotPane(&p.bars, time.Now()); plot.Attempts != "" {
			t.Error(plot.Attempts)
		}
		delete(totals, "k1")
		time.Sleep(time.Second)
		look()
		if n := len(b.histories["p"].keys); n != 1 {
			t.Errorf("%d keys are remembered", n)
		}
		b.note(time.Now(), nil)
		if len(b.histories) != 0 {
			t.Error(b.histories)
		}
	})
}

// TestStatusExample: the example asks for the password that its comment names.
func TestStatusExample(t *testing.T) {
	example, err := os.ReadFile("examples/status/Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	site, upstream := freeAddress(t), freeAddress(t)
	s := serve(t, "respond hi")
	config := strings.NewReplacer("\n{\n\tauto_https off\n}\n", "\n", "\n:8080 {", "\nhttp://"+site+" {", "127.0.0.1:8099", upstream).Replace(string(example))
	if err := loadCaddyfile(s.admin, config); err != nil {
		t.Fatal(err)
	}
	s.loaded.Store(true)
	s.url = "http://" + site
	s.post("/v1/chat/completions", chat("demo")).want(200, "The fifth key answered.")
	s.get("/status").want(401)
	r := s.request(http.MethodGet, "/status", nil)
	r.SetBasicAuth("operator", "look")
	page := s.do(s.client, r).want(200, "1 of 5 keys free").body
	for key, words := range map[string]string{
		"limited": "open rate_limit", "broke": "account halted billing_error", "revoked": "rejected auth_error", "failing": "open server_error",
		"healthy": "requests 432 of 500",
	} {
		if row := rowOf(t, page, key); !strings.Contains(row, words) {
			t.Errorf("no %q in %s", words, row)
		}
	}
}
