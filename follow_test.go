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
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

	said := func(message string) int { return len(sink.ours(message)) }
	for i, broken := range []func(){
		func() { write("") },
		func() { remove(t, file); makePipe(t, file) }, // to open it takes until somebody writes
	} {
		broken()
		eventually(t, "it is said that it is of no use", func() bool { return said("a key's new secret cannot be used, the old one stays") == i+1 })
		a.forget()
		s.post(path, chat("m")).want(200)
		a.wantOrder("k3")
		remove(t, file)
		write(secretOf("k3"))
		eventually(t, "it is said that it is what it was", func() bool { return said("a key's secret is what it was") == i+1 })
	}
	if n := len(sink.those("", "placeholder: failed to read file")); n > 0 {
		t.Errorf("Caddy itself said so %d times", n)
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

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func makePipe(t *testing.T, file string) {
	t.Helper()
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestResolve: what editors leave around a secret is none of it, and what cannot be one is refused without being shown.
func TestResolve(t *testing.T) {
	t.Setenv("RESOLVE", " sk-marker ")
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return "{file." + path + "}"
	}
	makePipe(t, filepath.Join(dir, "pipe"))
	for _, tc := range []struct{ secret, want, refused string }{
		{"sk-marker", "sk-marker", ""},
		{"{env.RESOLVE}", "sk-marker", ""},
		{file("lines", "sk-marker \r\n\n"), "sk-marker", ""},
		{file("marked", "\uFEFFsk-marker\n"), "sk-marker", ""},
		{"Key " + file("part", "marker"), "Key marker", ""},
		{file("blank", " \n"), "", "empty"},
		{file("two", "sk-marker\nsk-marker"), "", "control character"},
		{file("large", strings.Repeat("sk-marker", 2000)), "", "more than 16384 bytes"},
		{"{file." + filepath.Join(dir, "none") + "}", "", "missing"},
		{"{file." + dir + "}", "", "no regular file"},
		{"{file." + filepath.Join(dir, "pipe") + "}", "", "no regular file"},
		{"{env.RESOLVE_NOT}", "", "is not set"},
		{"sk-marker{env.RESOLVE_NOT}", "", "not known"},
	} {
		got, err := resolve(&Key{Secret: tc.secret})
		if got != tc.want || (err == nil) != (tc.refused == "") || err != nil && (!strings.Contains(err.Error(), tc.refused) || strings.Contains(err.Error(), "marker")) {
			t.Errorf("%s: %q, %v", tc.secret, got, err)
		}
	}
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
