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
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestGlance: what is found at the ends of a large body is what the search of all of it finds.
func TestGlance(t *testing.T) {
	long := `[{"role":"user","content":"` + strings.Repeat(`say \"model\": \"x\" `, 2000) + `"},{"model":"inner"}]`
	schema := `[{"parameters":{"properties":{"model":{"type":"string"}},"required":["model"]}}]`
	for _, tc := range []struct {
		body  string
		found bool
	}{
		{`{"model":"m","messages":` + long + `}`, true},
		{`{"model":"m","messages":` + long + `,"stream":true}`, true},
		{`{"messages":` + long + `,"model":"m"}`, true},
		{`{"messages":` + long + `, "model" : "m" , "stream": true, "tools":` + schema + ` } ` + "\n", true},
		{`{"model":"early","messages":` + long + `,"model":"m"}`, true},
		{`{"messages":` + long + `,"metadata":{"model":"inner"}}`, false},
		{`{"messages":` + long + `,"type":"model"}`, false},
		{`{"messages":` + long + `,"model":7}`, false},
		{`{"a":` + long + `,"model":"m","b":` + long + `}`, false},
		{`{"messages":` + long + `,"note":"\\\"model"}`, false},
	} {
		all := peek([]byte(tc.body))
		var top topLevel
		ok := top.glance([]byte(tc.body))
		if ok != tc.found || ok && (top.model != all.model || top.modelAt != all.modelAt) {
			t.Errorf("…%s: glance gave %+v, %v; all of it %+v", tc.body[len(tc.body)-60:], top, ok, all)
		}
	}
}

// TestGlanceAsksTheRestWhenItMatters: whether a stream or a background job is asked for is found out when something
// hangs on it, and the longer header limit holds for what is no stream.
func TestGlanceAsksTheRestWhenItMatters(t *testing.T) {
	long := `"messages":[{"content":"` + strings.Repeat("x", 64<<10) + `"}]`
	for _, tc := range []struct {
		path, body         string
		stream, repeatable bool
	}{
		{"/v1/chat/completions", `{"model":"m",` + long + `}`, false, true},
		{"/v1/chat/completions", `{"stream":true,` + long + `,"model":"m"}`, true, true},
		{"/v1/chat/completions", `{"background":true,` + long + `,"model":"m"}`, false, true},
		{"/v1/responses", `{"background":true,` + long + `,"model":"m"}`, false, false},
		{"/v1/responses", `{"model":"m",` + long + `,"background":false}`, false, true},
	} {
		r := httptest.NewRequest(http.MethodPost, tc.path, strings.NewReader(tc.body))
		r.Header.Set("Content-Type", "application/json")
		in, err := read(r, looseLimits(1<<20))
		if err != nil || !in.glanced || in.model != "m" {
			t.Fatalf("%v, glanced %v, model %q", err, in.glanced, in.model)
		}
		if in.stream() != tc.stream || in.repeatable() != tc.repeatable {
			t.Errorf("%s %.30s…: stream %v, repeatable %v", tc.path, tc.body, in.stream(), in.repeatable())
		}
		in.done()
		in.done()
	}
}

// TestHeaderLimitOfALargeRequest: a stream's headers have 30 s; an answer that is none has 10 min, which is found out
// when the 30 s are over.
func TestHeaderLimitOfALargeRequest(t *testing.T) {
	for _, tc := range []struct {
		body string
		took time.Duration
	}{
		{`{"model":"m","stream":true,"x":"` + strings.Repeat("x", 64<<10) + `"}`, 30 * time.Second},
		{`{"model":"m","x":"` + strings.Repeat("x", 64<<10) + `"}`, 10 * time.Minute},
	} {
		inVirtualTime(t, &Handler{Providers: []*Provider{testProvider("a", "k1")}}, always(simOutcome{delay: time.Hour}), func(p *play) {
			if w, took := p.post(tc.body); w.status != http.StatusGatewayTimeout || took != tc.took {
				t.Errorf("%d after %v, want 504 after %v", w.status, took, tc.took)
			}
		})
	}
}
