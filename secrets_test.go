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
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// echo answers with the credential it got, whole, masked and in parts, in body and header.
func echo(status int, format string) reply {
	return reply{do: func(w http.ResponseWriter, r *http.Request, c *call) {
		given := strings.TrimPrefix(c.header.Get("Authorization")+c.header.Get("X-Api-Key")+c.header.Get("X-Goog-Api-Key"), "Bearer ")
		said := fmt.Sprintf("%s; %s; %s", given, given[len(given)-12:], given[5:20])
		w.Header().Set("X-Echo", said)
		w.Header().Set("Www-Authenticate", "Bearer "+given)
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(format, "data:") || strings.HasPrefix(format, "event:") {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, format, said)
	}}
}

// TestEchoedSecretsStop: what an upstream repeats of our credential goes to nobody. (Everything that tests show is
// searched; see leaks.)
func TestEchoedSecretsStop(t *testing.T) {
	eachFamily(t, func(t *testing.T, f *family) {
		jsonError := `{"type":"error","error":{"message":"Bad thing with %s","type":"x","code":"y"}}`
		if f.name == "gemini" {
			jsonError = `{"error":{"code":400,"message":"Bad thing with %s","status":"INVALID_ARGUMENT"}}`
		}
		event := "event: error\ndata: " + jsonError + "\n\n"
		for name, tc := range map[string]struct {
			script reply
			status int
			words  string
		}{
			"in a 400":           {echo(400, jsonError), 400, "Bad thing with"},
			"in a 500":           {echo(500, jsonError), 500, "Bad thing with"},
			"in a text":          {echo(500, "Bad thing with %s"), 500, "Bad thing with"},
			"in an error in 200": {echo(200, jsonError), 0, "Bad thing with"},
			"in the first event": {echo(200, event), 0, "Bad thing with"},
			"in a later event":   {echo(200, strings.ReplaceAll(f.begin+f.text("one"), "%", "%%")+event), 200, "Bad thing with"},
			"in a good header":   {echo(200, strings.Replace(f.whole, "%q", `"fine %.0s"`, 1)), 200, "fine"},
		} {
			t.Run(name, func(t *testing.T) {
				if strings.HasPrefix(name, "in a later") {
					// it must be an event stream
					inner := tc.script
					tc.script = reply{do: func(w http.ResponseWriter, r *http.Request, c *call) {
						inner.do(streamWriter{w}, r, c)
					}}
				}
				a := newUpstream(t).on("k1", tc.script)
				s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1")+quick+"}")
				got := s.post(f.path, f.request)
				if !strings.Contains(got.body, tc.words) || tc.status != 0 && got.status != tc.status || tc.status == 0 && got.status < 400 {
					t.Errorf("%d %q", got.status, got.body)
				}
				if got.header.Get("X-Echo") != "" && !strings.Contains(got.header.Get("X-Echo"), redacted) {
					t.Error(got.header.Get("X-Echo"))
				}
				s.wantState("default.keys.k1.in_flight", "0")
			})
		}
	})
}

// streamWriter says that what is written is an event stream.
type streamWriter struct{ http.ResponseWriter }

func (w streamWriter) WriteHeader(status int) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.ResponseWriter.WriteHeader(status)
}

func TestSecretsFromFilesAndTheEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(secretOf("k2") + "\n")
	a := newUpstream(t)
	site := "llm_failover " + a.URL + " {\nkeys {\nmine {file." + file + "}\n}\n}"
	s := serve(t, site)
	s.post("/v1/chat/completions", chat("m")).want(200, "from-k2")
	old := s.state("default.providers.default.keys.mine.fingerprint")
	write(secretOf("k3"))
	s.post("/v1/chat/completions", chat("m")).want(200, "from-k2") // until the config is loaded again
	s.reload(site + "\nheader X-Changed 1")
	s.post("/v1/chat/completions", chat("m")).want(200, "from-k3")
	if now := s.state("default.providers.default.keys.mine.fingerprint"); now == old || !strings.HasPrefix(now, "sha256:") || len(now) != 15 {
		t.Error(old, now)
	}

	for name, bad := range map[string]string{
		"an unset variable":   "{env.SECRET_NONE}",
		"a missing file":      "{file." + file + ".none}",
		"an empty file":       "{file." + file + "}",
		"a request's header":  "{http.request.header.X-Key}",
		"a control character": "{env.SECRET_ODD}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SECRET_ODD", secretOf("k4")+"\r\nX-Evil: 1")
			write("  ")
			err := s.load("llm_failover " + a.URL + " {\nkeys {\nmine " + bad + "\n}\n}")
			if err == nil || !strings.Contains(err.Error(), "mine") {
				t.Error(err)
			} else {
				leaks.look("load error", []byte(err.Error()))
			}
			s.post("/v1/chat/completions", chat("m")).want(200, "from-k3") // the old config goes on
		})
	}
}

// TestSecretsGoToTheirOwnHostOnly: no upstream ever sees a credential of another one.
func TestSecretsGoToTheirOwnHostOnly(t *testing.T) {
	a, b := newUpstream(t).on("k1", fails(500, "oops")).on("k2", fails(401, "Incorrect API key provided")), newUpstream(t).on("b1", just(rst{})).on("b2", ok)
	s := serve(t, two(a, b, quick+"circuit {\nthreshold 100\n}"))
	s.post("/v1/chat/completions", chat("m")).want(200, "from-b2")
	for _, c := range a.asked("") {
		if c.key != "k1" && c.key != "k2" {
			t.Error("A got the credential of", c.key)
		}
	}
	for _, c := range b.asked("") {
		if c.key != "b1" && c.key != "b2" {
			t.Error("B got the credential of", c.key)
		}
	}
}
