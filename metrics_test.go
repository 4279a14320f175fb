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
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// scrape asks for the metrics of this handler.
func (s *server) scrape() map[string]*dto.MetricFamily {
	s.t.Helper()
	text := s.ask(http.MethodGet, "/metrics").want(http.StatusOK).body
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	for name := range families {
		if !strings.HasPrefix(name, "llm_failover_") {
			delete(families, name)
		}
	}
	return families
}

// metric sums the series of a family whose labels hold all pairs.
func metric(families map[string]*dto.MetricFamily, name string, pairs ...string) (sum float64) {
	for _, m := range families["llm_failover_"+name].GetMetric() {
		labels := make(map[string]string)
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		fits := true
		for i := 0; i < len(pairs); i += 2 {
			fits = fits && labels[pairs[i]] == pairs[i+1]
		}
		if fits {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// series counts all series.
func series(families map[string]*dto.MetricFamily) (n int) {
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}

// metricsPool is a site whose pool no other test has, so that its counters begin at zero.
func metricsPool(t *testing.T, address, lines string) string {
	t.Helper()
	return "llm_failover " + address + " {\npool " + strings.ToLower(t.Name()) + "\n" + keysOf("k1", "k2") + lines + "\n}"
}

// TestMetricsAddUp: what is counted is what the upstream saw and the callers got, to the unit, also after reloads.
func TestMetricsAddUp(t *testing.T) {
	const path = "/v1/chat/completions"
	a := newUpstream(t)
	site := metricsPool(t, a.URL, `retry {
			backoff 1ms
			max_retries 1
		}
		circuit {
			threshold 1000
		}
		models {
			m-*
		}`)
	s := serve(t, site)
	usage := says(200, `{"object":"chat.completion","choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":11,"completion_tokens":31}}`)
	f := &families[0]
	calls := map[string]int{}
	round := func() {
		a.forget()
		a.on("k1", ok, usage, fails(500, "oops"), fails(500, "oops"), fails(400, "bad"), events(f.begin, f.text("x"), cut{}), ok)
		a.on("k2", ok, fails(500, "oops"), ok)
		s.post(path, chat("m-1")).want(200)
		s.post(path, chat("m-2")).want(200)
		s.post(path, chat("m-3")).want(200) // k1 fails, k2 serves
		s.post(path, chat("m-4")).want(500) // both fail
		s.post(path, chat("m-5")).want(400)
		s.post(path, chat("m-6", streaming)).wantAborted()
		s.post(path, chat("other")).want(404)
		for _, c := range a.asked("") {
			calls[c.key]++
		}
	}
	check := func(n float64) {
		t.Helper()
		// An answer can be here while its request still counts as under way.
		var got map[string]*dto.MetricFamily
		eventually(t, "all have ended", func() bool {
			got = s.scrape()
			return metric(got, "requests_total") == n*7 && metric(got, "calls_in_flight") == 0
		})
		for _, w := range []struct {
			want  float64
			name  string
			pairs []string
		}{
			{n * 7, "requests_total", nil},
			{n * 2, "requests_total", []string{"outcome", "ok"}},
			{n * 1, "requests_total", []string{"outcome", "ok_after_failover"}},
			{n * 2, "requests_total", []string{"outcome", "failed"}},
			{n * 1, "requests_total", []string{"outcome", "failed_after_content"}},
			{n * 1, "requests_total", []string{"outcome", "refused"}},
			{0, "requests_total", []string{"outcome", "canceled"}},
			{float64(calls["k1"]), "attempts_total", []string{"key", "k1"}},
			{float64(calls["k2"]), "attempts_total", []string{"key", "k2"}},
			{n * 3, "attempts_total", []string{"class", "server_error"}},
			{n * 1, "attempts_total", []string{"class", "bad_request"}},
			{n * 2, "failovers_total", []string{"key", "k1", "class", "server_error"}},
			{n * 11, "tokens_total", []string{"model", "m-*", "type", "input"}},
			{n * 31, "tokens_total", []string{"model", "m-*", "type", "output"}},
			{n * 4, "first_content_seconds", nil},
			{n * 7, "request_seconds", nil},
			{n * 4, "overhead_seconds", nil},
			{2, "key_status", []string{"status", "available"}},
			{0, "calls_in_flight", nil},
			{0, "held_bytes", nil},
		} {
			if value := metric(got, w.name, w.pairs...); value != w.want {
				t.Errorf("%s%v is %v, want %v", w.name, w.pairs, value, w.want)
			}
		}
		if waited := metric(got, "wait_seconds_total", "kind", waitBackoff); waited < n*0.002 {
			t.Errorf("waited %v s", waited)
		}
	}
	round()
	check(1)
	s.reload(site + "\n# again")
	round()
	check(2)
	if s.load(site+"\nnonsense") == nil {
		t.Error("nonsense was loaded")
	}
	round()
	check(3)

	problems, err := promlint.New(strings.NewReader(s.ask(http.MethodGet, "/metrics").body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "llm_failover") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestMetricsOfState: the gauges are what is known at the time of asking.
func TestMetricsOfState(t *testing.T) {
	const path = "/v1/chat/completions"
	a := newUpstream(t).on("k1", fails(402, "Insufficient balance")).on("k2", limited("Retry-After", "60",
		"X-Ratelimit-Limit-Requests", "9", "X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "30s"))
	s := serve(t, metricsPool(t, a.URL, "limits {\nmax_in_flight 5 queue 5 10ms\n}"))
	s.post(path, chat("m"))
	got := s.scrape()
	for _, w := range []struct {
		least, most float64
		name        string
		pairs       []string
	}{
		{55, 60, "halt_seconds", []string{"account", "k1"}},
		{0, 0, "halt_seconds", []string{"account", "k2"}},
		{55, 60, "key_cooldown_seconds", []string{"key", "k2"}},
		{1, 1, "key_status", []string{"key", "k2", "status", "cooling"}},
		{1, 1, "circuit_failures", []string{"key", "k2"}},
		{0, 0, "headroom_remaining", []string{"key", "k2", "limit", "requests"}},
		{50, 50, "retry_budget_tokens", nil},
		{1, 1, "benches_total", []string{"key", "k1", "target", "account", "reason", "billing_error"}},
		{1, 1, "benches_total", []string{"key", "k2", "target", "key", "reason", "rate_limit"}},
		{0, 0, "requests_in_flight", nil},
		{0, 0, "queue_length", nil},
	} {
		if value := metric(got, w.name, w.pairs...); value < w.least || value > w.most {
			t.Errorf("%s%v is %v, want %v to %v", w.name, w.pairs, value, w.least, w.most)
		}
	}
	if len(got["llm_failover_headroom_remaining"].GetMetric()) != 1 {
		t.Error("the headroom of more or less than one limit is told")
	}
}

// TestMetricsTellCooldownsFromHalts: an account that is limited needs no money.
func TestMetricsTellCooldownsFromHalts(t *testing.T) {
	a := newUpstream(t).on("k1", fails(429, "Rate limit reached for your organization", "Retry-After", "60"))
	s := serve(t, metricsPool(t, a.URL, ""))
	free := func(key string) float64 { return metric(s.scrape(), "key_free", "key", key) }
	s.post("/v1/chat/completions", chat("m")).want(200, "from-k2")
	if halt, cooldown := metric(s.scrape(), "halt_seconds"), metric(s.scrape(), "key_cooldown_seconds", "key", "k1"); halt != 0 || cooldown < 55 {
		t.Errorf("a halt of %v s, a cooldown of %v s", halt, cooldown)
	}
	if free("k1") != 0 || free("k2") != 1 {
		t.Errorf("k1 is free: %v, k2: %v", free("k1"), free("k2"))
	}
	a.on("k2", fails(402, "Insufficient balance"))
	s.post("/v1/chat/completions", chat("m")).want(402)
	if got := metric(s.scrape(), "key_status", "key", "k2", "status", "available"); got != 1 || free("k2") != 0 {
		t.Errorf("k2 is available: %v, free: %v", got, free("k2"))
	}
}

// TestMetricsOfTokens: whatever answer says at its top how many it took is counted.
func TestMetricsOfTokens(t *testing.T) {
	const usage = `"usage":{"prompt_tokens":8,"completion_tokens":3,"total_tokens":11}}`
	large := strings.Repeat("0.25,", 200_000)
	for _, tc := range []struct{ what, path, body string }{
		{"an answer", "/v1/chat/completions", `{"object":"chat.completion","choices":[{"message":{"content":"hi"}}],` + usage},
		{"an image", "/v1/images/generations", `{"created":1,"data":[{"b64_json":"AAAA"}],` + usage},
		{"one that is not held", "/v1/embeddings", `{"object":"list","data":[{"embedding":[` + large + `0]}],` + usage},
		{"one that is not held, of a chat", "/v1/chat/completions", `{"object":"chat.completion","choices":[{"message":{"content":"` + large + `"}}],` + usage},
	} {
		t.Run(tc.what, func(t *testing.T) {
			a := newUpstream(t).on("k1", says(200, tc.body))
			s := serve(t, "llm_failover "+a.URL+" {\npool tokens-of-"+strings.NewReplacer(" ", "-", ",", "").Replace(tc.what)+"\n"+keysOf("k1")+"}")
			s.post(tc.path, chat("m")).want(200)
			// They are counted once the answer is there.
			eventually(t, "8 and 3 tokens", func() bool {
				got := s.scrape()
				return metric(got, "tokens_total", "type", "input") == 8 && metric(got, "tokens_total", "type", "output") == 3
			})
		})
	}
}

// TestMetricsOfPolling: who asks for the state of a run is told its usage each time, and uses nothing.
func TestMetricsOfPolling(t *testing.T) {
	a := newUpstream(t).on("k1", says(200, `{"id":"run_1","object":"thread.run","usage":{"prompt_tokens":100,"completion_tokens":3}}`))
	s := serve(t, metricsPool(t, a.URL, ""))
	for range 3 {
		s.do(s.client, s.request(http.MethodGet, "/v1/threads/t/runs/run_1", nil)).want(200)
	}
	eventually(t, "all have ended", func() bool { return metric(s.scrape(), "requests_total", "outcome", "ok") == 3 })
	if got := metric(s.scrape(), "tokens_total"); got != 0 {
		t.Errorf("%v tokens", got)
	}
}

// TestMetricsOfWhoDoesNotWait: only what was waited counts.
func TestMetricsOfWhoDoesNotWait(t *testing.T) {
	a := newUpstream(t).on("k1", limited("Retry-After", "60"))
	s := serve(t, "llm_failover "+a.URL+" {\npool who-does-not-wait\n"+keysOf("k1")+"retry {\nsame_key off\nmax_wait 2m\nwindow 3m\n}\n}")
	s.post("/v1/chat/completions", chat("m")).want(429)
	began := time.Now()
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		eventually(t, "somebody waits", func() bool { return metric(s.scrape(), "held_bytes") > 0 })
		leave()
	}()
	_, err := s.client.Do(s.request(http.MethodPost, "/v1/chat/completions", strings.NewReader(chat("m"))).WithContext(ctx))
	if err == nil {
		t.Fatal("it was answered")
	}
	eventually(t, "it has ended", func() bool { return metric(s.scrape(), "requests_total", "outcome", "canceled") == 1 })
	if waited, most := metric(s.scrape(), "wait_seconds_total"), time.Since(began).Seconds(); waited > most {
		t.Errorf("waited %v s in %v s", waited, most)
	}
}

// TestMetricsAreBounded: neither callers nor reloads make series.
func TestMetricsAreBounded(t *testing.T) {
	a := newUpstream(t)
	site := metricsPool(t, a.URL, "models {\nm-*\n*\n}")
	s := serve(t, site+"\n")
	p := pools.current(strings.ToLower(t.Name()))
	transport := p.providers[0].transport
	p.providers[0].transport = wholeAnswer{}
	ask := func(n int) {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(chat(fmt.Sprint("m-", n))))
		if err := p.serve(httptest.NewRecorder(), inCaddy(r)); err != nil {
			t.Fatal(err)
		}
	}
	ask(0)
	before := series(s.scrape())
	for n := range 50_000 {
		ask(n)
	}
	p.providers[0].transport = transport
	if got := s.scrape(); series(got) != before || metric(got, "requests_total", "pool", p.name) != 50_001 {
		t.Errorf("%d series after 50,000 models, %d before; %v requests", series(got), before, metric(got, "requests_total", "pool", p.name))
	}
	for n := range 100 {
		s.reload(site + fmt.Sprintf("\n# %d", n))
	}
	if got := series(s.scrape()); got != before {
		t.Errorf("%d series after 100 reloads, %d before", got, before)
	}
}

const wholeAnswerBody = `{"object":"chat.completion","choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`

// wholeAnswer is an upstream that answers at once.
type wholeAnswer struct{}

func (wholeAnswer) RoundTrip(*http.Request) (*http.Response, error) {
	body := io.NopCloser(strings.NewReader(wholeAnswerBody))
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: int64(len(wholeAnswerBody))}, nil
}

// TestMetricsOfTwoSites: a site with two addresses is one pool, and two pools are told apart.
func TestMetricsOfTwoSites(t *testing.T) {
	a := newUpstream(t)
	admin, one, two, three := freeAddress(t), freeAddress(t), freeAddress(t), freeAddress(t)
	pool := func(name string) string {
		return "llm_failover " + a.URL + " {\npool " + strings.ToLower(t.Name()) + name + "\n" + keysOf("k1") + "}\n"
	}
	s := serve(t, "respond hello")
	if err := loadCaddyfile(admin, fmt.Sprintf("http://%s, http://%s {\n%s}\nhttp://%s {\n%s}\n", one, two, pool("a"), three, pool("b"))); err != nil {
		t.Fatal(err)
	}
	s.admin = admin
	for _, address := range []string{one, two, three} {
		s.url = "http://" + address
		s.post("/v1/chat/completions", chat("m")).want(200)
	}
	got := s.scrape()
	name := strings.ToLower(t.Name())
	if a, b := metric(got, "requests_total", "pool", name+"a"), metric(got, "requests_total", "pool", name+"b"); a != 2 || b != 1 {
		t.Errorf("%v and %v requests, want 2 and 1", a, b)
	}
}

// TestMetricsRegisterOnce: all pools of a config share one collector, which tells what it describes.
func TestMetricsRegisterOnce(t *testing.T) {
	a := newUpstream(t)
	serve(t, metricsPool(t, a.URL, "")).post("/v1/chat/completions", chat("m")).want(200)
	registry := prometheus.NewPedanticRegistry()
	for range 2 {
		if err := registerMetrics(registry); err != nil {
			t.Error(err)
		}
	}
	if families, err := registry.Gather(); err != nil || len(families) == 0 {
		t.Error(families, err)
	}
}

// TestMetricsOfUnread: a request that could not even be read is refused, too.
func TestMetricsOfUnread(t *testing.T) {
	a := newUpstream(t)
	s := serve(t, "request_body {\nmax_size 10\n}\n"+metricsPool(t, a.URL, ""))
	body := io.MultiReader(strings.NewReader(chat("m"))) // of no length that request_body could refuse at once
	s.do(s.client, s.request(http.MethodPost, "/v1/chat/completions", body)).want(413)
	if got := metric(s.scrape(), "requests_total", "outcome", "refused"); got != 1 {
		t.Errorf("%v refused", got)
	}
}

// BenchmarkMetricsShare prints what part of the gateway's CPU time for a served request of 4 KB is spent on counting. The
// gateway's is what calls through it take more than calls without it, all in this process; of Caddy itself it has only net/http.
func BenchmarkMetricsShare(b *testing.B) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, wholeAnswerBody)
	}))
	defer upstream.Close()
	h := &Handler{Pool: "metrics-share", Providers: []*Provider{testProvider("a", "k1", "k2")}}
	h.Providers[0].BaseURL = upstream.URL
	p, cleanup := testHandler(b, h, http.DefaultTransport, nil)
	defer cleanup()
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := p.serve(w, inCaddy(r)); err != nil {
			b.Error(err)
		}
	}))
	defer gateway.Close()
	body := strings.Replace(chat("m"), "hi", strings.Repeat("x", 4<<10), 1)
	call := func(url string) func() {
		return func() {
			res, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}
	c := p.key("k1")
	x := &exchange{visit: &visit{credential: c}}
	count := func() {
		f := failover{pool: p, outcome: outcomeOK, in: &inbound{arrived: p.clock.Now()}}
		c.counters.served.Inc()
		var u dialect.Usage
		u.Look(dialect.Chat, []byte(wholeAnswerBody))
		p.counters.first.Observe(0.8)
		p.counters.overhead.Observe(0.0003)
		x.used("m", u)
		f.count()
	}
	const n = 500 // in turn, so that what else the machine does meets all of them
	var direct, through, counting time.Duration
	for b.Loop() {
		direct += cpuOf(n, call(upstream.URL))
		through += cpuOf(n, call(gateway.URL))
		counting += cpuOf(n, count)
	}
	b.ReportMetric(float64(through-direct)/1e3/float64(n*b.N), "gateway-µs/request")
	b.ReportMetric(float64(counting)/1e3/float64(n*b.N), "counting-µs/request")
	b.ReportMetric(100*float64(counting)/float64(through-direct), "%")
}

// cpuOf is the CPU time that the process takes meanwhile.
func cpuOf(n int, f func()) time.Duration {
	spent := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := spent()
	for range n {
		f()
	}
	return spent() - before
}
