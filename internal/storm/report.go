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
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Run is what came of a scenario.
type Run struct {
	Name          string  `json:"name"`
	Requests      int     `json:"requests"`       // of the callers; their SDKs' retries belong to them
	Tries         int     `json:"tries"`          // requests and retries
	Calls         int     `json:"calls"`          // upstream
	Probes        int     `json:"probes"`         // calls that found out whether a target is back
	AtOnce        int     `json:"probes_at_once"` // the most of them under way for one target
	Amplification float64 `json:"amplification"`  // calls for each request
	Peak          int     `json:"peak"`           // calls in one bucket
	Done          int     `json:"done"`           // requests that were served in the end
	Failed        int     `json:"failed"`         // those that were not
	Refused       int     `json:"refused"`        // tries for which nothing was asked upstream
	Waited        int64   `json:"waited_ms"`      // in the gateway, all tries together
	LongestWait   int64   `json:"longest_wait_ms"`
	FirstAfter    int64   `json:"first_after_ms"` // from the outage's end to the first success; -1: none, or no end
	FullAfter     int64   `json:"full_after_ms"`  // to the second from which on no try fails, but not before that success; -1: none
	Last          int64   `json:"last_ms"`        // when the last call began
	Bucket        int64   `json:"bucket_ms"`
	Good          []int   `json:"good"` // calls that succeed, by the bucket in which they begin
	Bad           []int   `json:"bad"`
}

// Result is how a try or a request ended.
type Result int

// The results.
const (
	Done Result = iota
	Failed
	Refused // without an upstream call
)

// Recorder counts what happens in a scenario. It is not safe for concurrent use.
type Recorder struct {
	run      Run
	scenario *Scenario
	probing  map[Target]int
	waited   time.Duration // of all tries; in whole milliseconds of each a good part would be lost
	bad      []int         // tries that did not end well, by the second after the outage in which they ended
	served   int           // the second of the last that did
}

// NewRecorder begins to count for a run.
func NewRecorder(name string, s *Scenario) *Recorder {
	return &Recorder{scenario: s, probing: make(map[Target]int), run: Run{Name: name, FirstAfter: -1, FullAfter: -1, Bucket: time.Duration(s.Bucket).Milliseconds()}, served: -1}
}

// Call counts an upstream call that begins, by what will come of it.
func (r *Recorder) Call(at time.Duration, good bool) {
	r.run.Calls++
	r.run.Last = max(r.run.Last, at.Milliseconds())
	bucket := min(int(at/time.Duration(r.scenario.Bucket)), maxBuckets-1)
	for len(r.run.Good) <= bucket {
		r.run.Good, r.run.Bad = append(r.run.Good, 0), append(r.run.Bad, 0)
	}
	if good {
		r.run.Good[bucket]++
	} else {
		r.run.Bad[bucket]++
	}
	r.run.Peak = max(r.run.Peak, r.run.Good[bucket]+r.run.Bad[bucket])
}

// Probe counts a call as one that finds out whether its target is back. What it returns is called when it has ended.
func (r *Recorder) Probe(t Target) (over func()) {
	r.run.Probes++
	r.probing[t]++
	r.run.AtOnce = max(r.run.AtOnce, r.probing[t])
	return func() { r.probing[t]-- }
}

// Request counts a request that has ended for good.
func (r *Recorder) Request(result Result) {
	r.run.Requests++
	if result == Done {
		r.run.Done++
	} else {
		r.run.Failed++
	}
}

// Try counts a try that has ended, and the time that it waited in the gateway.
func (r *Recorder) Try(at time.Duration, result Result, waited time.Duration) {
	r.run.Tries++
	r.waited += waited
	r.run.LongestWait = max(r.run.LongestWait, waited.Milliseconds())
	if result == Refused {
		r.run.Refused++
	}
	since := at - time.Duration(r.scenario.BackAt)
	if since < 0 || r.scenario.BackAt == 0 {
		return
	}
	second := min(int(since/time.Second), maxBuckets-1)
	if result == Done {
		if r.run.FirstAfter < 0 {
			r.run.FirstAfter = since.Milliseconds()
		}
		r.served = max(r.served, second)
		return
	}
	for len(r.bad) <= second {
		r.bad = append(r.bad, 0)
	}
	r.bad[second]++
}

// Run returns what was counted.
func (r *Recorder) Run() *Run {
	run := r.run
	run.Amplification = float64(run.Calls) / float64(max(run.Requests, 1))
	run.Waited = r.waited.Milliseconds()
	if r.served >= len(r.bad) {
		run.FullAfter = max(int64(len(r.bad))*1000, run.FirstAfter)
	}
	run.Good, run.Bad = slices.Clone(run.Good), slices.Clone(run.Bad)
	return &run
}

// WriteTable prints runs of a scenario.
func WriteTable(w io.Writer, s *Scenario, runs []*Run) error {
	fmt.Fprintf(w, "%s: %s\n", s.Name, s.Description)
	fmt.Fprintf(w, "%d callers over %v, %d requests each, %d SDK retries", s.Callers, time.Duration(s.Arrive), s.Requests, *s.Retries)
	if s.BackAt > 0 {
		fmt.Fprintf(w, "; the outage ends after %v", time.Duration(s.BackAt))
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "RUN\tREQUESTS\tCALLS\tPER REQUEST\tPEAK/%v\tPROBES\tDONE\tFAILED\tREFUSED\tWAITED (LONGEST)\tFIRST AFTER\tFULL AFTER\n", time.Duration(s.Bucket))
	for _, r := range runs {
		fmt.Fprintf(t, "%s\t%d\t%d\t%.2f\t%d\t%d\t%d (%.1f %%)\t%d\t%d\t%s (%s)\t%s\t%s\n", r.Name, r.Requests, r.Calls, r.Amplification, r.Peak, r.Probes,
			r.Done, 100*float64(r.Done)/float64(max(r.Requests, 1)), r.Failed, r.Refused, inSeconds(r.Waited), inSeconds(r.LongestWait), inSeconds(r.FirstAfter), inSeconds(r.FullAfter))
	}
	return t.Flush()
}

// inSeconds shows milliseconds, of which -1 stands for none.
func inSeconds(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f s", float64(ms)/1000)
}

// WriteJSON prints a scenario and its runs.
func WriteJSON(w io.Writer, s *Scenario, seed uint64, runs []*Run) error {
	return writeJSON(w, struct {
		Scenario *Scenario `json:"scenario"`
		Seed     uint64    `json:"seed"`
		Runs     []*Run    `json:"runs"`
	}{s, seed, runs})
}
