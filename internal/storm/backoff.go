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
	"encoding/json"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/llmfailover/caddy-llm-failover/internal/mersenne"
)

// Fixture is a storm small enough to be worked out by hand: all callers begin at once, in a provider's outage, and each
// tries on its own until its attempts or its time are used up. What begins at or after BackAt succeeds. Times are in
// milliseconds.
type Fixture struct {
	Callers  int    `json:"callers"`
	BackAt   int    `json:"back_at_ms"`
	Attempts int    `json:"attempts"`
	Bucket   int    `json:"bucket_ms"`
	Budget   int    `json:"budget_ms"` // no attempt begins later
	Seed     uint64 `json:"seed"`
}

// Backoff is the fixture that shows what backoff and jitter are worth.
var Backoff = Fixture{Callers: 120, BackAt: 2000, Attempts: 4, Bucket: 100, Budget: 2500, Seed: 107}

// FixtureRow is what came of a storm under one schedule of retries.
type FixtureRow struct {
	Schedule string  `json:"schedule"`
	Calls    int     `json:"calls"`
	Done     int     `json:"done"`
	Percent  float64 `json:"done_percent"`
	Peak     int     `json:"peak"` // calls in one bucket of the outage
	Last     int     `json:"last_ms"`

	at []int
}

// schedules are the waits before attempt n+1, in milliseconds.
var schedules = []struct {
	name string
	wait func(n int, random *mersenne.Source) int
}{
	{"immediate retry", func(int, *mersenne.Source) int { return 0 }},
	{"exponential, no jitter", func(n int, _ *mersenne.Source) int { return exponential(n) }},
	{"exponential, jitter, budget", func(n int, random *mersenne.Source) int { return min(exponential(n)+random.Range(0, 251), 1500) }},
}

func exponential(n int) int { return 250 << (n - 1) }

// Rows works the fixture out: the attempts in rounds, and in each round the callers in their order.
func (f Fixture) Rows() []FixtureRow {
	rows := make([]FixtureRow, 0, len(schedules))
	for _, s := range schedules {
		row := FixtureRow{Schedule: s.name, at: make([]int, f.Callers)}
		random := mersenne.New(f.Seed)
		waiting := make([]int, f.Callers)
		for n := 1; n < f.Attempts; n++ {
			still := waiting[:0]
			for _, at := range waiting {
				at += s.wait(n, random)
				if at > f.Budget {
					continue
				}
				row.at = append(row.at, at)
				if at >= f.BackAt {
					row.Done++
				} else {
					still = append(still, at)
				}
			}
			waiting = still
		}
		perBucket := make(map[int]int)
		for _, at := range row.at {
			row.Last = max(row.Last, at)
			if at < f.BackAt {
				perBucket[at/f.Bucket]++
				row.Peak = max(row.Peak, perBucket[at/f.Bucket])
			}
		}
		row.Calls = len(row.at)
		row.Percent = math.Round(float64(1000*row.Done)/float64(f.Callers)) / 10
		rows = append(rows, row)
	}
	return rows
}

// WriteTable prints the rows.
func (f Fixture) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%d callers at once; the upstream is back after %d ms; %d attempts within %d ms; buckets of %d ms; seed %d\n\n",
		f.Callers, f.BackAt, f.Attempts, f.Budget, f.Bucket, f.Seed)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCHEDULE\tCALLS\tDONE\tPEAK\tLAST")
	for _, r := range f.Rows() {
		fmt.Fprintf(t, "%s\t%d\t%d (%.1f %%)\t%d\t%d ms\n", r.Schedule, r.Calls, r.Done, r.Percent, r.Peak, r.Last)
	}
	return t.Flush()
}

// WriteJSON prints the parameters and the rows.
func (f Fixture) WriteJSON(w io.Writer) error {
	return writeJSON(w, struct {
		Fixture Fixture      `json:"fixture"`
		Rows    []FixtureRow `json:"rows"`
	}{f, f.Rows()})
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Runs are the rows as they can be plotted.
func (f Fixture) Runs() (s *Scenario, runs []*Run) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	s = &Scenario{BackAt: Duration(ms(f.BackAt)), Bucket: Duration(ms(f.Bucket)), Phases: []Phase{{Until: Duration(ms(f.BackAt))}}}
	for _, row := range f.Rows() {
		r := NewRecorder(row.Schedule, s)
		for _, at := range row.at {
			r.Call(ms(at), at >= f.BackAt)
		}
		runs = append(runs, r.Run())
	}
	return s, runs
}
