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

// Package storm describes outages and the callers that live through them, and tells what came of it: what a simulation
// is fed with and what it prints. It knows nothing of the handler.
package storm

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Scenario is an outage and who lives through it.
type Scenario struct {
	Name        string `yaml:"name" json:"name"`
	Description string `yaml:"description" json:"description,omitempty"`

	Callers  int      `yaml:"callers" json:"callers"`   // how many. Default: 100
	Arrive   Duration `yaml:"arrive" json:"arrive"`     // the time over which they begin. Default: 0, all at once
	Requests int      `yaml:"requests" json:"requests"` // of each caller, one after the other. Default: 1
	Pause    Duration `yaml:"pause" json:"pause"`       // between a caller's requests. Default: 0
	Retries  *int     `yaml:"retries" json:"retries"`   // of each caller's SDK, for one request. Default: 2, as in the official SDKs
	Stubborn bool     `yaml:"stubborn" json:"stubborn"` // its SDK retries even when told that it should not
	Patience Duration `yaml:"patience" json:"patience"` // how long it waits for an answer. Default: 10m, as in the official SDKs
	Model    string   `yaml:"model" json:"model"`       // that they ask for. Default: one that the config serves
	Stream   bool     `yaml:"stream" json:"stream"`     // whether they ask for streams
	Latency  Duration `yaml:"latency" json:"latency"`   // of an answer, good or bad, where a phase does not say otherwise. Default: 800ms
	BackAt   Duration `yaml:"back_at" json:"back_at"`   // when the outage is over. Default: the end of the last phase that has one
	Bucket   Duration `yaml:"bucket" json:"bucket"`     // the span in which calls are counted. Default: 100ms
	Phases   []Phase  `yaml:"phases" json:"phases"`     // what upstreams do; of those that fit a call the first counts. Without one it succeeds
}

// Phase is what some upstreams do for some time.
type Phase struct {
	From  Duration `yaml:"from" json:"from"`   // since the beginning
	Until Duration `yaml:"until" json:"until"` // 0: for ever
	Every Duration `yaml:"every" json:"every"` // with For: of each such span only its beginning
	For   Duration `yaml:"for" json:"for"`

	Provider string `yaml:"provider" json:"provider,omitempty"` // its name, in which a * stands for any part, or #1 for the first of the config. Default: all
	Key      string `yaml:"key" json:"key,omitempty"`           // its name likewise, or #1 for the first of its provider. Default: all

	Status  int               `yaml:"status" json:"status,omitempty"`
	Headers map[string]string `yaml:"headers" json:"headers,omitempty"`
	Body    string            `yaml:"body" json:"body,omitempty"`   // Default: an error as OpenAI words it
	Error   string            `yaml:"error" json:"error,omitempty"` // in place of an answer: refused, reset, dns or silent
	OK      bool              `yaml:"ok" json:"ok,omitempty"`       // a good answer; it makes sense with a delay
	Delay   Duration          `yaml:"delay" json:"delay"`           // Default: the scenario's latency
	Limit   *Limit            `yaml:"limit" json:"limit,omitempty"` // good answers, but beyond a limit 429s
}

// Limit is how many calls a key may make in each span of time, from the scenario's beginning on. It counts calls of its
// phase alone.
type Limit struct {
	Calls int      `yaml:"calls" json:"calls"`
	Per   Duration `yaml:"per" json:"per"`
}

// Duration is a time.Duration that is written as one, such as 1500ms.
type Duration time.Duration

// UnmarshalYAML implements yaml.Unmarshaler. (JSON is read as YAML, too.)
func (d *Duration) UnmarshalYAML(node *yaml.Node) error {
	parsed, err := time.ParseDuration(node.Value)
	if node.Kind != yaml.ScalarNode || err != nil && node.Value != "0" {
		return fmt.Errorf("line %d: %q is not a duration such as 500ms, 30s or 5m", node.Line, node.Value)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes it as UnmarshalYAML reads it.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// The bounds of a scenario: what a simulation can hold and a person will wait for.
const (
	maxCallers  = 100_000
	maxRequests = 1_000_000 // of all callers
	maxRetries  = 100
	maxPhases   = 1000
	maxTime     = 24 * time.Hour
	maxBuckets  = 1_000_000
	maxText     = 1 << 20
)

// Errors that may take an answer's place.
const (
	ErrorRefused = "refused" // nobody listens
	ErrorReset   = "reset"   // the connection breaks before an answer
	ErrorDNS     = "dns"     // the name is not known
	ErrorSilent  = "silent"  // no answer ever comes
)

var errorKinds = []string{ErrorRefused, ErrorReset, ErrorDNS, ErrorSilent}

// Parse reads a scenario in YAML or JSON. An error says what is wrong, and where.
func Parse(r io.Reader) (*Scenario, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("it is longer than %d bytes", maxText)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	s := new(Scenario)
	if err := d.Decode(s); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it is empty")
		}
		return nil, err
	}
	if d.Decode(new(yaml.Node)) != io.EOF {
		return nil, errors.New("there is more than one document")
	}
	s.complete()
	if where, err := s.check(); err != nil {
		return nil, fmt.Errorf("line %d: %w", lineOf(text, where...), err)
	}
	return s, nil
}

// lineOf finds the line in which a value begins, by the names and places on the way to it; of one that is not written
// down, that of what should hold it.
func lineOf(text []byte, way ...any) int {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil || len(document.Content) == 0 {
		return 1 // not after it was read once
	}
	at := document.Content[0]
	line := at.Line
	for _, step := range way {
		if at.Kind == yaml.AliasNode {
			at = at.Alias
		}
		var next *yaml.Node
		switch step := step.(type) {
		case string:
			for i := 0; i+1 < len(at.Content) && at.Kind == yaml.MappingNode; i += 2 {
				if at.Content[i].Value == step {
					next = at.Content[i+1]
					line = at.Content[i].Line
				}
			}
		case int:
			if step < len(at.Content) && at.Kind == yaml.SequenceNode {
				next = at.Content[step]
				line = next.Line
			}
		}
		if next == nil {
			break
		}
		at = next
	}
	return line
}

// complete fills in the defaults.
func (s *Scenario) complete() {
	if s.Callers == 0 {
		s.Callers = 100
	}
	if s.Requests == 0 {
		s.Requests = 1
	}
	if s.Retries == nil {
		two := 2
		s.Retries = &two
	}
	for to, fallback := range map[*Duration]time.Duration{&s.Patience: 10 * time.Minute, &s.Latency: 800 * time.Millisecond, &s.Bucket: 100 * time.Millisecond} {
		if *to == 0 {
			*to = Duration(fallback)
		}
	}
	if s.BackAt == 0 {
		for _, p := range s.Phases {
			s.BackAt = max(s.BackAt, p.Until)
		}
	}
}

// check says what is wrong, and the way to it as lineOf takes it.
func (s *Scenario) check() (where []any, err error) {
	for _, n := range []struct {
		name             string
		got, least, most int
	}{
		{"callers", s.Callers, 1, maxCallers},
		{"requests", s.Requests, 1, maxRequests / max(min(s.Callers, maxCallers), 1)},
		{"retries", *s.Retries, 0, maxRetries},
		{"phases", len(s.Phases), 0, maxPhases},
	} {
		if n.got < n.least || n.got > n.most {
			return []any{n.name}, fmt.Errorf("%s: %d is not between %d and %d", n.name, n.got, n.least, n.most)
		}
	}
	for _, d := range []struct {
		name  string
		got   Duration
		least time.Duration
	}{
		{"arrive", s.Arrive, 0}, {"pause", s.Pause, 0}, {"patience", s.Patience, time.Millisecond}, {"latency", s.Latency, 0}, {"back_at", s.BackAt, 0},
		{"bucket", s.Bucket, maxTime / maxBuckets},
	} {
		if err := checkTime(d.name, d.got, d.least); err != nil {
			return []any{d.name}, err
		}
	}
	if most := (maxTime - time.Duration(s.Arrive)) / time.Duration(s.Requests); time.Duration(s.Pause) > most {
		return []any{"pause"}, fmt.Errorf("pause: %v is more than %v, with which the callers need a day", time.Duration(s.Pause), most)
	}
	for i := range s.Phases {
		if field, err := s.Phases[i].check(); err != nil {
			return []any{"phases", i, field}, fmt.Errorf("phase %d: %w", i+1, err)
		}
	}
	return nil, nil
}

func checkTime(name string, d Duration, least time.Duration) error {
	if got := time.Duration(d); got < least || got > maxTime {
		return fmt.Errorf("%s: %v is not between %v and %v", name, got, least, maxTime)
	}
	return nil
}

func (p *Phase) check() (field string, err error) {
	for _, d := range []struct {
		name string
		got  Duration
	}{{"from", p.From}, {"until", p.Until}, {"every", p.Every}, {"for", p.For}, {"delay", p.Delay}} {
		if err := checkTime(d.name, d.got, 0); err != nil {
			return d.name, err
		}
	}
	outcomes := 0
	for _, given := range []bool{p.Status != 0, p.Error != "", p.OK, p.Limit != nil} {
		if given {
			outcomes++
		}
	}
	switch {
	case outcomes != 1:
		return "", errors.New("it needs one of status, error, ok and limit, and no more")
	case p.Until != 0 && p.Until <= p.From:
		return "until", fmt.Errorf("until %v is not after from %v", time.Duration(p.Until), time.Duration(p.From))
	case (p.Every > 0) != (p.For > 0) || p.For > p.Every:
		return "every", errors.New("every and for go together, and for is the shorter one")
	case p.Status != 0 && (p.Status < 300 || p.Status > 599):
		return "status", fmt.Errorf("status: %d is not that of a failure, 300 to 599; write ok for good answers", p.Status)
	case p.Error != "" && !slices.Contains(errorKinds, p.Error):
		return "error", fmt.Errorf("error: unknown %q; it may be %s", p.Error, strings.Join(errorKinds, ", "))
	case p.Status == 0 && (len(p.Headers) > 0 || p.Body != ""):
		return "", errors.New("headers and body need a status")
	case p.Limit != nil && (p.Limit.Calls < 0 || p.Limit.Per <= 0 || time.Duration(p.Limit.Per) > maxTime):
		return "limit", fmt.Errorf("limit: it needs calls, 0 or more, and per, a time above zero and no longer than %v", maxTime)
	}
	for _, name := range []struct{ field, pattern string }{{"provider", p.Provider}, {"key", p.Key}} {
		rest, place := strings.CutPrefix(name.pattern, "#")
		if n, err := strconv.ParseUint(rest, 10, 16); place && (err != nil || n == 0 || rest[0] == '0') {
			return name.field, fmt.Errorf("%s: %q is no place such as #1", name.field, name.pattern)
		}
	}
	return "", nil
}

// SetCallers changes how many callers there are. An error says how many there may be.
func (s *Scenario) SetCallers(n int) error {
	s.Callers = n
	_, err := s.check()
	return err
}

// holds reports whether the phase is on.
func (p *Phase) holds(at time.Duration) bool {
	since := at - time.Duration(p.From)
	if since < 0 || p.Until > 0 && at >= time.Duration(p.Until) {
		return false
	}
	return p.Every == 0 || since%time.Duration(p.Every) < time.Duration(p.For)
}

//go:embed scenarios/*.yaml
var builtIn embed.FS

// Names lists the built-in scenarios.
func Names() []string {
	files, _ := builtIn.ReadDir("scenarios") // it cannot fail
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(f.Name(), ".yaml")
	}
	return names
}

// BuiltIn returns a scenario by its name; nil if there is none.
func BuiltIn(name string) *Scenario {
	f, err := builtIn.Open(path.Join("scenarios", name+".yaml"))
	if err != nil {
		return nil
	}
	defer f.Close()
	s, err := Parse(f)
	if err != nil {
		panic("storm: built-in scenario " + name + ": " + err.Error()) // a test reads them all
	}
	return s
}
