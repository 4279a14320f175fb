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
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // a real Caddy
)

// The integration tests run a real Caddy in the test process, so that the race detector sees all of it, between real
// sockets: scripted upstreams (upstream_test.go) behind it, HTTP clients before it. Waits are configured short.

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "llm_failover")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"XDG_DATA_HOME", "XDG_CONFIG_HOME"} {
		os.Setenv(name, dir)
	}
	for _, key := range keyNames {
		os.Setenv(envOf(key), secretOf(key))
	}
	caddy.RegisterModule(sinkWriter{})
	code := m.Run()
	if found := leaks.found(); len(found) > 0 {
		fmt.Println("secrets were shown:\n" + strings.Join(found, "\n"))
		code = 1
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// keyNames are the keys that tests use. Each has a secret of its own in an environment variable of its name.
var keyNames = []string{"k1", "k2", "k3", "k4", "k5", "b1", "b2", "c1", "other"}

func envOf(key string) string { return "SECRET_" + strings.ToUpper(key) }

// secretOf is a key's secret: its name, and 24 letters that nothing else holds.
func secretOf(key string) string { return "sk-" + key + "-" + markerOf(key) }

var markerSeed = fmt.Sprint(time.Now().UnixNano())

func markerOf(key string) string {
	sum := sha256.Sum256([]byte(markerSeed + key))
	return strings.Map(func(r rune) rune { return r + 'g' - '0' }, hex.EncodeToString(sum[:12])) // no hex digits: fingerprints have those
}

// keysOf is the Caddyfile's block for some keys.
func keysOf(names ...string) string {
	var b strings.Builder
	b.WriteString("keys {\n")
	for _, n := range names {
		fmt.Fprintf(&b, "\t%s {env.%s}\n", n, envOf(n))
	}
	return b.String() + "}\n"
}

// leaks notes where a secret, or eight letters in a row of one, was shown.
var leaks leakFinder

type leakFinder struct {
	once  sync.Once
	grams [][]byte

	mu   sync.Mutex
	seen []string
}

// look searches what was shown, and returns it.
func (l *leakFinder) look(where string, shown []byte) []byte {
	l.once.Do(func() {
		for _, key := range keyNames {
			for m := markerOf(key); len(m) >= leakLength; m = m[1:] {
				l.grams = append(l.grams, []byte(m[:leakLength]))
			}
		}
	})
	for _, gram := range l.grams {
		if i := bytes.Index(shown, gram); i >= 0 {
			l.mu.Lock()
			l.seen = append(l.seen, fmt.Sprintf("%s: …%s…", where, shown[max(0, i-150):min(len(shown), i+50)]))
			l.mu.Unlock()
			break
		}
	}
	return shown
}

func (l *leakFinder) found() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[:len(l.seen):len(l.seen)]
}

// sink collects what Caddy logs.
var sink logSink

type logSink struct {
	mu    sync.Mutex
	lines []string
}

// Write implements io.Writer; zap calls it once for each line.
func (s *logSink) Write(line []byte) (int, error) {
	s.mu.Lock()
	s.lines = append(s.lines, string(line))
	s.mu.Unlock()
	leaks.look("log", line)
	return len(line), nil
}

func (s *logSink) Close() error { return nil }

func (s *logSink) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = nil
}

// those returns the lines of a logger with a message.
func (s *logSink) those(logger, message string) (found []gjson.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		if l := gjson.Parse(line); strings.HasPrefix(l.Get("logger").String(), logger) && l.Get("msg").String() == message {
			found = append(found, l)
		}
	}
	return found
}

// ours returns the handler's log lines at info and above, or those with a message.
func (s *logSink) ours(message string) (found []gjson.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		l := gjson.Parse(line)
		if l.Get("logger").String() == "http.handlers.llm_failover" && (message == "" && l.Get("level").String() != "debug" || l.Get("msg").String() == message) {
			found = append(found, l)
		}
	}
	return found
}

// sinkWriter is the log output module that writes to sink.
type sinkWriter struct{}

func (sinkWriter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.sink", New: func() caddy.Module { return new(sinkWriter) }}
}
func (*sinkWriter) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { d.Next(); return nil }
func (sinkWriter) String() string                                   { return "sink" }
func (sinkWriter) WriterKey() string                                { return "sink" }
func (sinkWriter) OpenWriter() (io.WriteCloser, error)              { return &sink, nil }

// server is a running Caddy.
type server struct {
	t           *testing.T
	url, admin  string
	client, two *http.Client // HTTP/1.1 and, without TLS, HTTP/2
	loaded      atomic.Bool  // a config was loaded after the first, and nothing served since
}

// serve starts a Caddy with one site, of which site is the content, and stops it when the test ends.
func serve(t *testing.T, site string) *server {
	t.Helper()
	s := &server{t: t, url: "http://" + freeAddress(t), admin: freeAddress(t)}
	one, two := &http.Transport{MaxIdleConnsPerHost: 300}, &http.Transport{Protocols: new(http.Protocols)}
	two.Protocols.SetUnencryptedHTTP2(true)
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.client = &http.Client{Transport: one, Timeout: time.Minute, CheckRedirect: noRedirect}
	s.two = &http.Client{Transport: two, Timeout: time.Minute, CheckRedirect: noRedirect}
	sink.reset()
	before := len(leaks.found())
	s.reload(site)
	t.Cleanup(func() {
		for _, path := range []string{"/llm_failover", "/metrics", "/config/"} {
			s.ask(http.MethodGet, path)
		}
		one.CloseIdleConnections()
		two.CloseIdleConnections()
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
		if found := leaks.found(); len(found) > before {
			t.Errorf("secrets were shown:\n%s", strings.Join(found[before:], "\n"))
		}
		if t.Failed() {
			lines := sink.ours("")
			for _, l := range lines[max(0, len(lines)-12):] {
				t.Log(strings.TrimSpace(l.Raw))
			}
		}
	})
	return s
}

// reload loads another content of the site.
func (s *server) reload(site string) {
	s.t.Helper()
	if err := s.load(site); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) load(site string) error {
	defer s.client.CloseIdleConnections()
	defer s.two.CloseIdleConnections()
	defer s.loaded.Store(true)
	return loadCaddyfile(s.admin, s.url+" {\n\tlog {\n\t\toutput sink\n\t\tformat json\n\t}\n"+site+"\n}\n")
}

func loadCaddyfile(admin, sites string) error {
	config := fmt.Sprintf(`{
	admin %s
	persist_config off
	auto_https off
	metrics
	log {
		output sink
		format json
		level DEBUG
	}
	servers {
		protocols h1 h2c
	}
%s}
%s`, admin, subscriptions(), sites)
	b, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err
	}
	return caddy.Load(b, false)
}

// freeAddress returns an address on which nobody listens. No other test gets it, and no connection or server that asks
// for any port: those get higher ones.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 12_000+(int64(os.Getpid())*97+lastPort.Add(1))%18_000))
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().String()
	}
	t.Fatal("no free port")
	return ""
}

var lastPort atomic.Int64

// received is what a caller got, read to its end.
type received struct {
	t      testing.TB
	status int
	proto  int
	header http.Header
	body   string
	err    error // the transfer did not end properly, or there was no answer
	took   time.Duration
}

// post sends a JSON body. Headers are names and values in turn.
func (s *server) post(path, body string, headers ...string) *received {
	return s.do(s.client, s.request(http.MethodPost, path, strings.NewReader(body), headers...))
}

func (s *server) request(method, path string, body io.Reader, headers ...string) *http.Request {
	r, err := http.NewRequestWithContext(context.Background(), method, s.url+path, body)
	if err != nil {
		s.t.Error(err)
		return nil
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func (s *server) do(client *http.Client, r *http.Request) *received {
	a := &received{t: s.t}
	begun := time.Now()
	defer func() { a.took = time.Since(begun) }()
	res, err := client.Do(r)
	// The old server's listener closes at some moment after the new one's runs, and the connections that it has not
	// accepted by then are lost. That is Caddy's, and not what is tested here.
	for n := 0; err != nil && n < 20 && s.loaded.Load() && r.Context().Err() == nil && (r.Body == nil || r.GetBody != nil); n++ {
		client.CloseIdleConnections()
		if r = r.Clone(r.Context()); r.GetBody != nil {
			r.Body, _ = r.GetBody()
		}
		res, err = client.Do(r)
	}
	s.loaded.Store(s.loaded.Load() && err != nil)
	if err != nil {
		a.err = err
		return a
	}
	defer res.Body.Close()
	a.read(res)
	return a
}

func (a *received) read(res *http.Response) {
	a.status, a.proto, a.header = res.StatusCode, res.ProtoMajor, res.Header
	b, err := io.ReadAll(res.Body)
	a.body, a.err = string(leaks.look("answer", b)), err
	for name, values := range res.Header {
		leaks.look("answer's header "+name, []byte(strings.Join(values, "\n")))
	}
}

// want checks status and proper end, and that the body holds some words.
func (a *received) want(status int, words ...string) *received {
	a.t.Helper()
	if a.status != status || a.err != nil {
		a.t.Errorf("got %d (%v), want %d: %.600s", a.status, a.err, status, a.body)
	}
	for _, w := range words {
		if !strings.Contains(a.body, w) {
			a.t.Errorf("no %q in %d %.600s", w, a.status, a.body)
		}
	}
	return a
}

// wantAborted checks that the answer began and broke off.
func (a *received) wantAborted() *received {
	a.t.Helper()
	if a.status != http.StatusOK || a.err == nil {
		a.t.Errorf("status %d and error %v, want a cut 200: %.600s", a.status, a.err, a.body)
	}
	return a
}

// lacks checks that the body does not hold any of these words.
func (a *received) lacks(words ...string) *received {
	a.t.Helper()
	for _, w := range words {
		if strings.Contains(a.body, w) {
			a.t.Errorf("%q in %.600s", w, a.body)
		}
	}
	return a
}

func (a *received) json(path string) string { return gjson.Get(a.body, path).String() }

// wantJSON checks values at paths of the body: paths and values in turn. The value "" also means absent.
func (a *received) wantJSON(pairs ...string) *received {
	a.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := a.json(pairs[i]); got != pairs[i+1] {
			a.t.Errorf("%s is %q, want %q in %.600s", pairs[i], got, pairs[i+1], a.body)
		}
	}
	return a
}

// wantHeader checks header fields: names and values in turn. The value "" means absent.
func (a *received) wantHeader(pairs ...string) *received {
	a.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := a.header.Get(pairs[i]); got != pairs[i+1] {
			a.t.Errorf("%s is %q, want %q", pairs[i], got, pairs[i+1])
		}
	}
	return a
}

// ask calls the admin API. Each load, also a refused one, replaces the admin server, whose listener then loses a
// connection at times: what got no answer at all is asked again. (All that the API does may be done twice.)
func (s *server) ask(method, path string) *received {
	s.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, "http://"+s.admin+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	loaded := s.loaded.Load() // by the site, not by the admin server
	a := s.do(s.client, r)
	for n := 0; a.status == 0 && n < 20; n++ {
		s.client.CloseIdleConnections()
		a = s.do(s.client, r)
	}
	s.loaded.Store(loaded)
	return a
}

// state is what the admin API shows at a path below pools.
func (s *server) state(path string) string {
	s.t.Helper()
	return s.ask(http.MethodGet, adminPath).want(http.StatusOK).json("pools." + path)
}

// wantState checks what the admin API shows: paths below pools.default.providers, and values, in turn.
func (s *server) wantState(pairs ...string) {
	s.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := s.state("default.providers." + pairs[i]); got != pairs[i+1] {
			s.t.Errorf("%s is %q, want %q", pairs[i], got, pairs[i+1])
		}
	}
}

// eventually waits for what comes by itself, but after the answer.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if !repeat(ctx, 2*time.Millisecond, is) {
		t.Errorf("still not: %s", what)
	}
}

// repeat calls f, and again at each interval, until it reports true or ctx ends. It returns what f reported last.
func repeat(ctx context.Context, interval time.Duration, f func() bool) bool {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// chat is a small chat request; extra is more of its JSON.
func chat(model string, extra ...string) string {
	b, err := json.Marshal(model)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"model":%s,"messages":[{"role":"user","content":"hi"}]%s}`, b, strings.Join(extra, ""))
}

const streaming = `,"stream":true`
