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
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/caddyserver/caddy/v2"
)

// fieldsOf lists the paths of all fields of a JSON value, without those below skip.
func fieldsOf(v gjson.Result, prefix string, into map[string]bool) {
	v.ForEach(func(key, value gjson.Result) bool {
		into[prefix+key.String()] = true
		if value.IsObject() {
			fieldsOf(value, prefix+key.String()+".", into)
		}
		return true
	})
}

func TestAdminShape(t *testing.T) {
	a := newUpstream(t).on("k1", limited("Retry-After", "20")).on("k2", fails(402, "Insufficient Balance")).
		on("k3", fails(401, "Incorrect API key provided")).
		on("k4", says(404, `{"error":{"message":"The model m does not exist","type":"invalid_request_error","code":"model_not_found"}}`))
	s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2", "k3", "k4", "k5")+quick+"}")
	s.post("/v1/chat/completions", chat("m")).want(200, "from-k5")
	got := s.ask(http.MethodGet, "/llm_failover").want(200).wantHeader("Content-Type", "application/json")
	one := s.ask(http.MethodGet, "/llm_failover/default").want(200)
	if g, o := gjson.Parse(got.body).Get("pools.@keys").Raw, gjson.Parse(one.body).Get("pools.@keys").Raw; g != o || g != `["default"]` {
		t.Error(g, o)
	}
	provider := gjson.Get(got.body, "pools.default.providers.default")
	fields := make(map[string]bool)
	fieldsOf(provider, "", fields)
	key := func(name string) []string {
		var all []string
		for _, f := range []string{"", ".fingerprint", ".account", ".status", ".circuit", ".circuit.state", ".circuit.failures", ".in_flight", ".totals", ".totals.attempts", ".totals.failures"} {
			all = append(all, "keys."+name+f)
		}
		return all
	}
	want := []string{"base_url", "status", "accounts", "accounts.k2", "accounts.k2.halt", "keys"}
	for _, f := range []string{"reason", "since", "until", "remaining_ms", "strikes"} {
		want = append(want, "accounts.k2.halt."+f)
		if f != "strikes" {
			want = append(want, "keys.k1.cooldown."+f, "keys.k4.models.m."+f)
		}
		want = append(want, "keys.k3.rejected."+f)
	}
	want = append(want, "keys.k1.cooldown.hint", "keys.k1.cooldown", "keys.k3.rejected", "keys.k4.models", "keys.k4.models.m")
	for _, name := range []string{"k1", "k2", "k3", "k4", "k5"} {
		want = append(want, key(name)...)
		if name != "k5" {
			want = append(want, "keys."+name+".last_error", "keys."+name+".last_error.class", "keys."+name+".last_error.status", "keys."+name+".last_error.at")
		}
	}
	for _, f := range want {
		if !fields[f] {
			t.Errorf("no field %s", f)
		}
		delete(fields, f)
	}
	for f := range fields {
		t.Errorf("an unknown field %s", f)
	}
	s.wantState("default.base_url", a.URL, "default.status", "available",
		"default.keys.k1.status", "cooling", "default.keys.k1.account", "k1", "default.keys.k1.last_error.class", "rate_limit", "default.keys.k1.last_error.status", "429",
		"default.keys.k2.status", "available", "default.accounts.k2.halt.reason", "billing_error", "default.accounts.k2.halt.strikes", "1",
		"default.keys.k3.status", "rejected", "default.keys.k4.models.m.reason", "model_unavailable", "default.keys.k5.status", "available")
	for path, atMost := range map[string]time.Duration{
		"keys.k1.cooldown": 20 * time.Second, "accounts.k2.halt": time.Minute, "keys.k4.models.m": time.Minute, "keys.k3.rejected": 10 * time.Minute,
	} {
		b := provider.Get(path)
		left := time.Duration(b.Get("remaining_ms").Int()) * time.Millisecond
		if since, until := b.Get("since").Time(), b.Get("until").Time(); left > atMost || left < atMost-5*time.Second || until.Sub(since).Round(time.Millisecond) != atMost {
			t.Errorf("%s: %s, from %s to %s", path, left, since, until)
		}
	}
}

func TestAdminErrors(t *testing.T) {
	a := newUpstream(t)
	s := serve(t, pair(a))
	for _, tc := range []struct {
		method, path string
		status       int
	}{
		{http.MethodPost, "/llm_failover", 405},
		{http.MethodPut, "/llm_failover", 405},
		{http.MethodPost, "/llm_failover/default", 405},
		{http.MethodGet, "/llm_failover/none", 404},
		{http.MethodGet, "/llm_failover/default/reset", 405},
		{http.MethodDelete, "/llm_failover/default/default/k1/disable", 405},
		{http.MethodPost, "/llm_failover/none/reset", 404},
		{http.MethodPost, "/llm_failover/default/none/reset", 404},
		{http.MethodPost, "/llm_failover/default/default/none/reset", 404},
		{http.MethodPost, "/llm_failover/default/default/none/disable", 404},
		{http.MethodPost, "/llm_failover/default/disable", 404},
		{http.MethodPost, "/llm_failover/default/default/k1/explode", 404},
		{http.MethodPost, "/llm_failover/default/default/k1/k1/reset", 404},
		{http.MethodGet, "/llm_failover/default/default/k1", 404},
	} {
		got := s.ask(tc.method, tc.path).want(tc.status).wantHeader("Content-Type", "application/json")
		if got.json("error") == "" {
			t.Errorf("%s %s: %s", tc.method, tc.path, got.body)
		}
	}
	s.wantState("default.keys.k1.status", "available")
}

// TestAdminShowsUnproven: between the end of a halt and the success of a probe only one request at a time may pass, which
// is not as good as available.
func TestAdminShowsUnproven(t *testing.T) {
	a := newUpstream(t).on("k1", fails(402, "Insufficient Balance"), ok)
	gone := newUpstream(t)
	gone.Close()
	s := serve(t, "llm_failover {\nprovider gone "+gone.URL+" {\n"+keysOf("k3")+"}\nprovider default "+a.URL+" {\n"+keysOf("k1", "k2")+"}\n"+quick+"halt {\nbase 20ms\n}\n}")
	s.post("/v1/chat/completions", chat("m")).want(200, "from-k2")
	for _, what := range []string{"gone.", "default.accounts.k1."} {
		path := "default.providers." + what
		eventually(t, what+"halt is over", func() bool { return s.state(path+"halt") == "" })
		if got := s.state(path + "unproven.reason"); got == "" || s.state(path+"unproven.since") == "" || s.state(path+"unproven.remaining_ms") != "0" {
			t.Errorf("%sunproven is %s", what, s.state(path+"unproven"))
		}
	}
	s.wantState("gone.status", "available", "default.keys.k1.status", "available")
	eventually(t, "k1 serves", func() bool {
		return strings.Contains(s.post("/v1/chat/completions", chat("m")).want(200).body, "from-k1")
	})
	s.wantState("default.accounts", "")
}

func TestAdminReset(t *testing.T) {
	broken := func(t *testing.T) (*upstream, *server) {
		a := newUpstream(t).on("k1", fails(500, "oops")).on("k2", fails(402, "Insufficient Balance")).on("k3", fails(401, "Incorrect API key provided"))
		s := serve(t, "llm_failover "+a.URL+" {\n"+keysOf("k1", "k2", "k3")+quick+"circuit {\nthreshold 1\n}\n}")
		s.post("/v1/chat/completions", chat("m"))
		s.wantState("default.keys.k1.status", "open", "default.accounts.k2.halt.reason", "billing_error", "default.keys.k3.status", "rejected")
		for _, k := range []string{"k1", "k2", "k3"} {
			a.on(k, ok)
		}
		return a, s
	}
	for _, tc := range []struct{ path, k1, k2, k3, served string }{
		{"default/reset", "available", "", "available", "from-k1"},
		{"default/default/reset", "available", "", "available", "from-k1"},
		{"default/default/k1/reset", "available", "billing_error", "rejected", "from-k1"},
		{"default/default/k2/reset", "open", "", "rejected", "from-k2"},
		{"default/default/k3/reset", "open", "billing_error", "available", "from-k3"},
	} {
		t.Run(tc.path, func(t *testing.T) {
			_, s := broken(t)
			s.ask(http.MethodPost, "/llm_failover/"+tc.path).want(200).wantJSON("pools.default.providers.default.keys.k1.status", tc.k1)
			s.wantState("default.keys.k1.status", tc.k1, "default.accounts.k2.halt.reason", tc.k2, "default.keys.k3.status", tc.k3,
				"default.keys.k1.totals.attempts", "1") // totals stay
			s.post("/v1/chat/completions", chat("m")).want(200, tc.served)
		})
	}
}

func TestAdminDisable(t *testing.T) {
	a := newUpstream(t)
	site := pair(a)
	s := serve(t, site)
	const k1 = "/llm_failover/default/default/k1/"
	s.ask(http.MethodPost, k1+"disable").want(200).wantJSON("pools.default.providers.default.keys.k1.status", "disabled")
	s.post("/v1/chat/completions", chat("m")).want(200, "from-k2")
	since := s.state("default.providers.default.keys.k1.disabled_since")
	if _, err := time.Parse(time.RFC3339, since); err != nil {
		t.Error(err)
	}
	s.ask(http.MethodPost, k1+"reset").want(200) // does not enable
	s.ask(http.MethodPost, k1+"disable").want(200)
	s.wantState("default.keys.k1.status", "disabled", "default.keys.k1.disabled_since", since)
	s.reload(site + "\nheader X-Changed 1")
	s.wantState("default.keys.k1.status", "disabled", "default.keys.k1.disabled_since", since)
	s.post("/v1/chat/completions", chat("m")).want(200, "from-k2")
	s.ask(http.MethodPost, k1+"enable").want(200)
	s.wantState("default.keys.k1.disabled_since", "")
	s.post("/v1/chat/completions", chat("m")).want(200, "from-k1")
}

func TestTwoPools(t *testing.T) {
	a := newUpstream(t).on("k1", fails(500, "oops"))
	pool := func(name string) string {
		return "llm_failover /" + name + "/* " + a.URL + " {\npool " + name + "\n" + keysOf("k1") + quick + "select " + map[string]string{"one": "first", "two": "random"}[name] + "\ncircuit {\nthreshold 1\n}\n}\n"
	}
	s := serve(t, pool("one")+pool("two"))
	s.post("/one/v1/chat/completions", chat("m")).want(500)
	if one, two := s.state("one.providers.default.keys.k1.status"), s.state("two.providers.default.keys.k1.status"); one != "open" || two != "available" {
		t.Error(one, two)
	}
	s.ask(http.MethodGet, "/llm_failover/two").wantJSON("pools.@keys", `["two"]`)
	if err := s.load(pool("one") + strings.Replace(pool("two"), "pool two", "pool one", 1)); err == nil || !strings.Contains(err.Error(), `pool "one" is already defined`) {
		t.Error("two pools of one name in a Caddyfile:", err)
	}
	config := s.ask(http.MethodGet, "/config/").body
	if err := caddy.Load([]byte(strings.Replace(config, `"pool":"two"`, `"pool":"one"`, 1)), false); err == nil || !strings.Contains(err.Error(), "two pools of that name") {
		t.Error("two pools of one name in JSON:", err)
	}
	if one := s.state("one.providers.default.keys.k1.status"); one != "open" {
		t.Error("after a refused load:", one)
	}
}

// TestOnePoolAtTwoAddresses: a site with two addresses is two servers and one pool.
func TestOnePoolAtTwoAddresses(t *testing.T) {
	a := newUpstream(t).on("k1", fails(500, "oops"))
	s := serve(t, "respond ok")
	second := "http://" + freeAddress(t)
	err := loadCaddyfile(s.admin, s.url+", "+second+" {\nllm_failover "+a.URL+" {\n"+keysOf("k1")+quick+"circuit {\nthreshold 1\n}\n}\n}")
	if err != nil {
		t.Fatal(err)
	}
	s.client.CloseIdleConnections()
	s.post("/v1/chat/completions", chat("m")).want(500)
	first := s.url
	s.url = second
	s.post("/v1/chat/completions", chat("m")).want(503).wantJSON("error.code", "all_open")
	s.url = first
	s.post("/v1/chat/completions", chat("m")).want(503).wantJSON("error.code", "all_open")
	s.wantState("default.keys.k1.totals.attempts", "2", "default.keys.k1.status", "open")
	a.wantOrder("k1 k1")
}
