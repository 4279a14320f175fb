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

package storm

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestBackoff: the table of the fixture, as an independent program in Python works it out.
func TestBackoff(t *testing.T) {
	want := []FixtureRow{
		{Schedule: "immediate retry", Calls: 480, Done: 0, Percent: 0, Peak: 480, Last: 0},
		{Schedule: "exponential, no jitter", Calls: 480, Done: 0, Percent: 0, Peak: 120, Last: 1750},
		{Schedule: "exponential, jitter, budget", Calls: 480, Done: 94, Percent: 78.3, Peak: 120, Last: 2438},
	}
	for i, got := range Backoff.Rows() {
		if got.at = nil; got.Schedule != want[i].Schedule || got.Calls != want[i].Calls || got.Done != want[i].Done || got.Percent != want[i].Percent ||
			got.Peak != want[i].Peak || got.Last != want[i].Last {
			t.Errorf("%+v, want %+v", got, want[i])
		}
	}
	var table bytes.Buffer
	if err := Backoff.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	const text = `120 callers at once; the upstream is back after 2000 ms; 4 attempts within 2500 ms; buckets of 100 ms; seed 107

SCHEDULE                     CALLS  DONE         PEAK  LAST
immediate retry              480    0 (0.0 %)    480   0 ms
exponential, no jitter       480    0 (0.0 %)    120   1750 ms
exponential, jitter, budget  480    94 (78.3 %)  120   2438 ms
`
	if table.String() != text {
		t.Errorf("it prints\n%s", table.String())
	}
	third := Fixture{Callers: 3, BackAt: 250, Attempts: 2, Bucket: 100, Budget: 400, Seed: 1}
	if got := third.Rows()[2]; got.Done != 2 || got.Percent != 66.7 {
		t.Errorf("%+v: 2 of 3 are 66.7 %%", got)
	}
	other := Backoff
	other.Seed++
	if other.Rows()[2].Last == want[2].Last && other.Rows()[2].Done == want[2].Done {
		t.Error("another seed changes nothing")
	}
}

func parse(text string) (*Scenario, error) { return Parse(strings.NewReader(text)) }

func TestParse(t *testing.T) {
	s, err := parse(`{"name": "n", "phases": [{"until": "3s", "status": 500}, {"from": "1s", "until": "7s", "error": "reset"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if s.Callers != 100 || *s.Retries != 2 || s.Requests != 1 || time.Duration(s.BackAt) != 7*time.Second || time.Duration(s.Patience) != 10*time.Minute {
		t.Errorf("defaults: %+v", s)
	}
	for text, want := range map[string]string{
		"":                                "it is empty",
		"name: a\n---\nname: b":           "more than one document",
		"nmae: a":                         "line 1: field nmae not found",
		"name: a\n\ncallers: -1":          "line 3: callers: -1 is not between 1 and 100000",
		"callers: 1000\nrequests: 100000": "requests: 100000 is not between 1 and 1000",
		"retries: 101":                    "retries: 101 is not between 0 and 100",
		"name: a\narrive: soon":           `line 2: "soon" is not a duration such as 500ms, 30s or 5m`,
		"arrive: 25h":                     "arrive: 25h0m0s is not between 0s and 24h0m0s",
		"bucket: 1ns":                     "bucket: 1ns is not between 86.4ms",
		"phases: [{until: 3s}]":           "phase 1: it needs one of status, error, ok and limit, and no more",
		"phases: [{ok: true}, {ok: true, status: 500}]":             "phase 2: it needs one of",
		"phases: [{status: 200}]":                                   "phase 1: status: 200 is not that of a failure",
		"phases: [{status: 500, from: 3s, until: 2s}]":              "phase 1: until 2s is not after from 3s",
		"phases: [{status: 500, every: 3s}]":                        "phase 1: every and for go together",
		"phases: [{error: bored}]":                                  `phase 1: error: unknown "bored"; it may be refused, reset, dns, silent`,
		"phases: [{ok: true, body: x}]":                             "phase 1: headers and body need a status",
		"phases:\n- ok: true\n- limit:\n    calls: 3\n    per: 25h": "line 3: phase 2: limit: it needs calls",
		"phases:\n- &p\n  ok: true\n- <<: *p\n  from: -1s":          "line 5: phase 2: from: -1s is not",
		"{\"phases\": [\n{\"ok\": true,\n\"status\": 500}]}":        "line 2: phase 1: it needs one of",
		"phases: [{ok: true, provider: '#'}]":                       `provider: "#" is no place such as #1`,
		"phases: [{ok: true, provider: '#01'}]":                     `provider: "#01" is no place such as #1`,
		"arrive: 12h\nrequests: 3\npause: 5h":                       "line 3: pause: 5h0m0s is more than 4h0m0s",
		"phases: [{limit: {calls: 3}}]":                             "phase 1: limit: it needs calls, 0 or more, and per",
		"phases: [{ok: true, key: '#0'}]":                           `line 1: phase 1: key: "#0" is no place such as #1`,
		"name: " + strings.Repeat("x", maxText):                     "it is longer than",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
	if _, err := Parse(brokenReader{}); err == nil {
		t.Error("what cannot be read was read")
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

// TestBuiltIn: each parses, and says what it is.
func TestBuiltIn(t *testing.T) {
	want := []string{"dead-key", "flapping", "no-money", "provider-down", "rate-limit-window", "slow", "total-outage"}
	if got := Names(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, name := range Names() {
		if s := BuiltIn(name); s.Name != name || s.Description == "" || len(s.Phases) == 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if BuiltIn("nonsense") != nil || BuiltIn("../scenario.go") != nil {
		t.Error("a scenario that there is not")
	}
}

func TestUpstream(t *testing.T) {
	s, err := parse(`
latency: 10ms
phases:
  - {from: 1s, until: 2s, provider: a, key: "#2", status: 401}
  - {from: 10s, until: 20s, every: 4s, for: 1s, provider: "#2", error: refused}
  - {from: 30s, until: 50s, limit: {calls: 2, per: 10s}}
  - {from: 60s, status: 302, headers: {Location: x}, body: moved, delay: 3s}
`)
	if err != nil {
		t.Fatal(err)
	}
	targets := []Target{{"a", "k1"}, {"a", "k2"}, {"b", "k1"}}
	u := NewUpstream(s, targets)
	for _, tc := range []struct {
		target int
		at     time.Duration
		status int
		err    string
	}{
		{1, 0, 200, ""},
		{1, time.Second, 401, ""},
		{1, 2 * time.Second, 200, ""},
		{0, time.Second, 200, ""},
		{2, 10 * time.Second, 0, "refused"},
		{2, 10999 * time.Millisecond, 0, "refused"},
		{2, 11 * time.Second, 200, ""},
		{2, 14 * time.Second, 0, "refused"},
		{0, 14 * time.Second, 200, ""},
		{0, 31 * time.Second, 200, ""},
		{0, 32 * time.Second, 200, ""},
		{0, 33500 * time.Millisecond, 429, ""},
		{1, 34 * time.Second, 200, ""},
		{0, 40 * time.Second, 200, ""},
		{2, time.Hour, 302, ""},
	} {
		got := u.Answer(targets[tc.target], tc.at)
		if got.Error != tc.err || tc.err == "" && got.Status != tc.status || got.Good() != (tc.status == 200) {
			t.Errorf("%v at %v: %+v", targets[tc.target], tc.at, got)
		}
		switch tc.status {
		case 429:
			if wait := got.Header.Get("Retry-After"); wait != "7" {
				t.Errorf("Retry-After %s", wait)
			}
		case 401:
			if !json.Valid([]byte(got.Body)) || got.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%+v", got)
			}
		case 302:
			if got.Body != "moved" || got.Header.Get("Location") != "x" || got.Delay != 3*time.Second {
				t.Errorf("%+v", got)
			}
		case 200:
			if got.Delay != 10*time.Millisecond {
				t.Errorf("delay %v", got.Delay)
			}
		}
	}
}

func TestFits(t *testing.T) {
	for _, tc := range []struct {
		pattern, name string
		place         int
		want          bool
	}{
		{"", "a", 1, true},
		{"#2", "a", 2, true},
		{"#2", "a", 12, false},
		{"#12", "a", 12, true},
		{"a", "a", 1, true},
		{"a", "ab", 1, false},
		{"*", "", 1, true},
		{"a*", "ab", 1, true},
		{"a*", "ba", 1, false},
		{"*b", "ab", 1, true},
		{"*b", "ba", 1, false},
		{"a*a", "a", 1, false},
		{"a*a", "aa", 1, true},
		{"*key*eu", "my-key-1-eu", 1, true},
		{"*key*us*", "my-key-1-eu", 1, false},
		{"a**b", "ab", 1, true},
	} {
		if got := fits(tc.pattern, tc.name, tc.place); got != tc.want {
			t.Errorf("fits(%q, %q, %d): %t", tc.pattern, tc.name, tc.place, got)
		}
	}
}

// TestUpstreamChecks: a phase about nobody is named.
func TestUpstreamChecks(t *testing.T) {
	s, err := parse("phases: [{ok: true}, {ok: true, provider: 'a*', key: '#2'}, {ok: true, provider: b, key: k2}]")
	if err != nil {
		t.Fatal(err)
	}
	targets := []Target{{"a", "k1"}, {"a", "k2"}, {"b", "k1"}}
	want := `phase 3: no key fits provider "b", key "k2"`
	if err := NewUpstream(s, targets).Check(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := NewUpstream(s, append(targets, Target{"b", "k2"})).Check(); err != nil {
		t.Error(err)
	}
}

// TestLimitsApart: the calls of one limit are not counted for the next, though the number of the window be the same.
func TestLimitsApart(t *testing.T) {
	s, err := parse("phases: [{until: 10s, limit: {calls: 1, per: 10s}}, {limit: {calls: 1, per: 1m}}]")
	if err != nil {
		t.Fatal(err)
	}
	u := NewUpstream(s, nil)
	for i, tc := range []struct {
		at   time.Duration
		good bool
	}{{0, true}, {9 * time.Second, false}, {10 * time.Second, true}, {59 * time.Second, false}, {time.Minute, true}} {
		if got := u.Answer(Target{"a", "k"}, tc.at); got.Good() != tc.good {
			t.Errorf("call %d: %+v", i, got)
		}
	}
}

func TestRecorder(t *testing.T) {
	s, err := parse("phases: [{until: 2s, status: 500}]")
	if err != nil {
		t.Fatal(err)
	}
	r := NewRecorder("test", s)
	for _, at := range []time.Duration{0, 10, 99, 100, 2500} {
		r.Call(at*time.Millisecond, at == 2500)
	}
	over := r.Probe(Target{"a", "k1"})
	r.Probe(Target{"b", "k1"})()
	over()
	r.Try(time.Second, Failed, 300*time.Millisecond)
	r.Try(2100*time.Millisecond, Refused, 0)
	r.Try(3100*time.Millisecond, Failed, 0)
	r.Try(4500*time.Millisecond, Done, 700*time.Millisecond)
	r.Request(Done)
	r.Request(Failed)
	got := r.Run()
	if got.Calls != 5 || got.Peak != 3 || got.Amplification != 2.5 || got.Probes != 2 || got.AtOnce != 1 || got.Done != 1 || got.Failed != 1 || got.Refused != 1 || got.Tries != 4 ||
		got.Waited != 1000 || got.LongestWait != 700 || got.FirstAfter != 2500 || got.FullAfter != 2500 || got.Last != 2500 ||
		len(got.Good) != 26 || got.Good[25] != 1 || got.Bad[0] != 3 || got.Bad[1] != 1 {
		t.Errorf("%+v", got)
	}
	r.Try(6*time.Second, Failed, 0)
	r.Try(7100*time.Millisecond, Done, 0)
	if got := r.Run(); got.FirstAfter != 2500 || got.FullAfter != 5000 {
		t.Errorf("first after %d, full after %d", got.FirstAfter, got.FullAfter)
	}
	for range 1000 {
		r.Try(7100*time.Millisecond, Done, 900*time.Microsecond)
	}
	if got := r.Run().Waited; got != 1900 {
		t.Errorf("waited %d ms, want 1900", got)
	}
	r.Try(9*time.Second, Failed, 0)
	if got := r.Run().FullAfter; got != -1 {
		t.Errorf("full after %d though the last try failed", got)
	}
	for name, write := range map[string]func(io.Writer) error{
		"table": func(w io.Writer) error { return WriteTable(w, s, []*Run{got}) },
		"json":  func(w io.Writer) error { return WriteJSON(w, s, 1, []*Run{got}) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil || !strings.Contains(b.String(), "2.5") {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
	}
}

// TestPlot: the image is well-formed XML, and of all that was counted.
func TestPlot(t *testing.T) {
	s, runs := Backoff.Runs()
	for i, row := range Backoff.Rows() {
		if runs[i].Calls != row.Calls || runs[i].Peak != row.Peak {
			t.Errorf("%+v is not %+v", runs[i], row)
		}
	}
	long := NewRecorder("a long one & <odd>", s)
	long.Call(20*time.Hour, true)
	for _, runs := range [][]*Run{runs, {long.Run()}, nil} {
		var b bytes.Buffer
		if err := Plot(&b, `Storms "&" <calms>`, s, runs); err != nil {
			t.Fatal(err)
		}
		if b.Len() > 1<<20 {
			t.Errorf("it has %d bytes", b.Len())
		}
		for d := xml.NewDecoder(&b); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	for least, want := range map[time.Duration]time.Duration{
		0:                      100 * time.Millisecond,
		300 * time.Millisecond: 500 * time.Millisecond,
		12 * time.Second:       20 * time.Second,
		31 * time.Second:       time.Minute,
		40 * time.Minute:       time.Hour,
		maxTime / 8:            3 * time.Hour,
	} {
		if got := niceTime(least); got != want {
			t.Errorf("niceTime(%v) is %v, want %v", least, got, want)
		}
	}
	for _, tc := range [][2]float64{{0, 1}, {1.2, 2}, {3, 5}, {7, 10}, {130, 200}} {
		if got := niceStep(tc[0]); got != tc[1] {
			t.Errorf("niceStep(%v) is %v, want %v", tc[0], got, tc[1])
		}
	}
}

// FuzzParse: whatever comes, it is refused or plays, and means the same when it is written down again.
func FuzzParse(f *testing.F) {
	for _, name := range Names() {
		text, err := builtIn.ReadFile("scenarios/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"name": "n", "phases": [{"until": "3s", "status": 500}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(bytes.NewReader(text))
		if err != nil {
			return
		}
		targets := []Target{{"a", "k1"}, {"b", "k1"}}
		u := NewUpstream(s, targets)
		for _, at := range []time.Duration{0, time.Second, time.Duration(s.BackAt)} {
			for _, target := range targets {
				u.Answer(target, at)
			}
		}
		written, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(bytes.NewReader(written))
		if err != nil {
			t.Fatalf("%v of %s", err, written)
		}
		if twice, _ := json.Marshal(again); !bytes.Equal(twice, written) {
			t.Errorf("%s became %s", written, twice)
		}
	})
}
