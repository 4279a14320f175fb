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

// Package e2e asks through a real Caddy with the real clients. It is a module of its own, so that users of the plugin
// do not get the clients as dependencies.
package e2e

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // a real Caddy

	_ "github.com/llmfailover/caddy-llm-failover"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "llm_failover")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"XDG_DATA_HOME", "XDG_CONFIG_HOME"} {
		os.Setenv(name, dir)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// upstream answers each key with its own list of replies, of which the last one repeats.
type upstream struct {
	*httptest.Server
	mu      sync.Mutex
	replies map[string][]http.HandlerFunc
	asked   []string // whose key each call carried
	bodies  []string
}

func newUpstream(t *testing.T, replies map[string][]http.HandlerFunc) *upstream {
	u := &upstream{replies: replies}
	u.Server = httptest.NewUnstartedServer(u)
	u.Config.ErrorLog = log.New(io.Discard, "", 0)
	u.Start()
	t.Cleanup(func() {
		u.CloseClientConnections()
		u.Close()
	})
	return u
}

// ServeHTTP implements http.Handler.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"), "Bearer ")
	key = strings.TrimPrefix(key, "secret-of-")
	body, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	u.asked, u.bodies = append(u.asked, key), append(u.bodies, string(body))
	list := u.replies[key]
	if len(list) > 1 {
		u.replies[key] = list[1:]
	}
	u.mu.Unlock()
	list[0](w, r)
}

func (u *upstream) wantCalls(t *testing.T, want string) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if got := strings.Join(u.asked, " "); got != want {
		t.Errorf("calls %q, want %q", got, want)
	}
}

// freeAddresses returns two addresses on which nobody listens.
func freeAddresses(t *testing.T) (addresses [2]string) {
	t.Helper()
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // both are held until both are known
		addresses[i] = l.Addr().String()
	}
	return addresses
}

// serve starts a Caddy with a pool of one provider with the keys k1 and k2, and returns its URL.
// Retry is more lines of the retry block.
func serve(t *testing.T, u *upstream, retry string) string {
	t.Helper()
	return serveSite(t, fmt.Sprintf(`llm_failover %s {
		keys {
			k1 secret-of-k1
			k2 secret-of-k2
		}
		retry {
			same_key 5ms
			backoff 5ms
			%s
		}
	}`, u.URL, retry))
}

// serveSite starts a Caddy with one site, of which site is the content, and returns its URL.
func serveSite(t *testing.T, site string) string {
	t.Helper()
	addresses := freeAddresses(t)
	config := fmt.Sprintf(`{
	admin %s
	persist_config off
	auto_https off
	log {
		output discard
	}
}
http://%s {
	%s
}`, addresses[0], addresses[1], site)
	b, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(b, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + addresses[1]
}

// kind is a kind of answer, as a vendor words it whole and as a stream.
type kind struct {
	name   string
	tools  bool // it calls the tool weather
	whole  string
	events []string
}

// failsOver asks where k1 fails with the first reply and k2 answers with the second, and checks what the client makes
// of it.
func failsOver[A any](t *testing.T, k kind, name string, first, second http.HandlerFunc, check func(*testing.T, *A), ask func(*testing.T, string) (*A, error)) {
	t.Run(name, func(t *testing.T) {
		u := newUpstream(t, map[string][]http.HandlerFunc{"k1": {first}, "k2": {second}})
		got, err := ask(t, serve(t, u, ""))
		if err != nil {
			t.Fatal(err)
		}
		check(t, got)
		u.wantCalls(t, "k1 k2")
		if u.bodies[0] != u.bodies[1] || k.tools != strings.Contains(u.bodies[1], "weather") {
			t.Error(u.bodies)
		}
	})
}

// says answers with a status and a body.
func says(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// streams answers with events; with cut the connection ends without a proper end.
func streams(cut bool, events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			io.WriteString(w, e+"\n\n")
			w.(http.Flusher).Flush()
		}
		if cut {
			panic(http.ErrAbortHandler)
		}
	}
}
