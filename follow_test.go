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
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// TestFollowSecrets: a secret in a file is used as soon as the file has it, without a reload. What was known of the key
// is forgotten, a stream under way goes on, and what cannot be used changes nothing.
func TestFollowSecrets(t *testing.T) {
	const path, key = "/v1/chat/completions", "default.providers.default.keys.k1."
	file := filepath.Join(t.TempDir(), "secret")
	write := func(secret string) {
		t.Helper()
		// As tools do it: whole, or not at all.
		if err := os.WriteFile(file+".new", []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	f := &families[0]
	go1 := make(chan struct{})
	a := newUpstream(t).on("k1", events(f.begin, f.text("x"), until(go1), f.end), fails(401, "Incorrect API key provided"))
	write(secretOf("k1") + "\n")
	site := "llm_failover " + a.URL + " {\nkeys {\nk1 {file." + file + "}\nk2 {env.SECRET_K2}\n}\n}"
	s := serve(t, site)
	stream := s.open(s.client, f)
	stream.until("delta")
	s.post(path, chat("m")).want(200) // k1 is rejected
	if got := s.state(key + "status"); got != "rejected" {
		t.Fatalf("k1 is %s", got)
	}
	old := s.state(key + "fingerprint")

	write(secretOf("k3"))
	eventually(t, "the new secret is used", func() bool { return s.state(key+"fingerprint") != old })
	if got := s.state(key + "status"); got != "available" {
		t.Errorf("with a new secret k1 is %s", got)
	}
	a.forget()
	s.post(path, chat("m")).want(200)
	a.wantOrder("k3") // the upstream names keys by what they carry
	if got := s.state(key + "totals.attempts"); got != "1" {
		t.Errorf("%s attempts", got)
	}
	close(go1)
	stream.rest()

	for _, broken := range []string{"", "two\nlines"} {
		write(broken)
		if err := waitForReread(t); err != nil {
			t.Fatal(err)
		}
		a.forget()
		s.post(path, chat("m")).want(200)
		a.wantOrder("k3")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	write(secretOf("k1"))
	eventually(t, "the first one again", func() bool { return s.state(key+"fingerprint") == old })
	if got := s.state(key + "status"); got != "available" {
		t.Errorf("what nobody remembered any more is %s", got)
	}
	if n := metric(s.scrape(), "attempts_total", "pool", "default", "key", "k1", "class", "auth_error"); n != 1 {
		t.Errorf("%v refused attempts are counted", n)
	}
}

// waitForReread returns when the files have been looked at once more, and then some.
func waitForReread(t *testing.T) error {
	t.Helper()
	p := pools.current(defaultName)
	h := &Handler{Providers: []*Provider{{Name: "a", BaseURL: "https://a.example", Keys: []*Key{{Name: "k", Secret: "{file." + filepath.Join(t.TempDir(), "other") + "}"}}}}, Pool: strings.ToLower(t.Name())}
	file := strings.TrimSuffix(strings.TrimPrefix(h.Providers[0].Keys[0].Secret, "{file."), "}")
	if err := os.WriteFile(file, []byte("secret-one"), 0o600); err != nil {
		return err
	}
	q, cleanup := testHandler(t, h, noTransport{}, nil)
	defer cleanup()
	if err := os.WriteFile(file, []byte("secret-two"), 0o600); err != nil {
		return err
	}
	for range 2 { // it began to look after the other one did
		eventually(t, "a look at the files", func() bool { return h.pool.Load() != q })
		q = h.pool.Load()
		if err := os.WriteFile(file, []byte("secret-one"), 0o600); err != nil {
			return err
		}
	}
	if pools.current(defaultName) != p {
		t.Error("what cannot be used made another pool")
	}
	return nil
}

// TestFollowSecretsUnderLoad: no request fails, or goes anywhere with half of a change, while secrets change.
func TestFollowSecretsUnderLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	write := func(key string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(secretOf(key)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	a := newUpstream(t)
	write("k1")
	s := serve(t, "llm_failover "+a.URL+" {\nkeys {\nfirst {file."+file+"}\n}\n}")
	var over atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for !over.Load() {
				s.post("/v1/chat/completions", chat("m")).want(200)
			}
		})
	}
	for _, key := range []string{"k2", "k3", "k1"} {
		write(key)
		eventually(t, key+" is used", func() bool { return len(a.asked(key)) > 0 })
		a.forget()
	}
	over.Store(true)
	wg.Wait()
	eventually(t, "nothing is in flight", func() bool { return s.state("default.providers.default.keys.first.in_flight") == "0" })
}

// TestFollowSecretsEnds: a config that is gone looks at no file, and one without files never does.
func TestFollowSecretsEnds(t *testing.T) {
	following := func() int {
		buf := make([]byte, 4<<20)
		return strings.Count(string(buf[:runtime.Stack(buf, true)]), "followSecrets.func")
	}
	eventually(t, "earlier tests' ones are gone", func() bool { return following() == 0 })
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secretOf("k1")), 0o600); err != nil {
		t.Fatal(err)
	}
	with := "llm_failover https://llm.example {\nkeys {\nk1 {file." + file + "}\n}\n}"
	s := serve(t, with)
	for range 5 {
		s.reload(with + "\n# again")
		if s.load(with+"\nnonsense") == nil || s.load(with+"\nllm_failover https://llm.example {\nkeys {\nk {env.NOT_SET}\n}\n}") == nil {
			t.Fatal("nonsense was loaded")
		}
	}
	eventually(t, "one is left", func() bool { return following() == 1 })
	s.reload("llm_failover https://llm.example {\n" + keysOf("k1") + "}")
	eventually(t, "none is left", func() bool { return following() == 0 })
	if got := s.ask(http.MethodGet, adminPath); got.status != 200 {
		t.Error(got.status)
	}
}

// TestKeysThroughTheConfigAPI: keys are added, removed and reordered by Caddy's own API, by the handler's @id, while
// callers are served. What is known of the others stays.
func TestKeysThroughTheConfigAPI(t *testing.T) {
	a := newUpstream(t).on("k1", fails(401, "Incorrect API key provided"))
	s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2")+"}")
	config := s.ask(http.MethodGet, "/config/").want(200).body
	config = strings.Replace(config, `"handler":"llm_failover"`, `"handler":"llm_failover","@id":"chat"`, 1)
	if err := caddy.Load([]byte(config), true); err != nil {
		t.Fatal(err)
	}
	s.loaded.Store(true)
	s.post("/v1/chat/completions", chat("m")).want(200)
	s.wantState("default.keys.k1.status", "rejected")

	var over atomic.Bool
	var wg sync.WaitGroup
	// A connection for each call, as in TestReloadUnderLoad. One that is lost while listeners change has met no handler.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for range 4 {
		wg.Go(func() {
			for !over.Load() {
				if got := s.do(client, s.request(http.MethodPost, "/v1/chat/completions", strings.NewReader(chat("m")))); got.status != 0 {
					got.want(200)
				}
			}
		})
	}
	change := func(method, path, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.admin+"/id/chat/providers/0/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		s.loaded.Store(true)
		s.do(s.client, r).want(200)
		s.loaded.Store(true)
		s.wantState("default.keys.k1.status", "rejected")
	}
	const k1, k2, k3 = `{"name":"k1","secret":"{env.SECRET_K1}"}`, `{"name":"k2","secret":"{env.SECRET_K2}"}`, `{"name":"k3","secret":"{env.SECRET_K3}"}`
	change(http.MethodPost, "keys", k3)
	s.wantState("default.keys.k3.status", "available")
	change(http.MethodDelete, "keys/1", "")
	s.wantState("default.keys.k2.status", "")
	eventually(t, "k3 serves", func() bool { return len(a.asked("k3")) > 0 })
	change(http.MethodPatch, "keys", "["+k3+","+k2+","+k1+"]")
	s.wantState("default.keys.k2.status", "available")
	over.Store(true)
	wg.Wait()
}
