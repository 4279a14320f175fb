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

// Command bench compares llm_failover with reverse_proxy: one Caddy process with a site of each, one upstream, short
// rounds in turn. See README.md.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	caddy    string
	run      string
	rounds   int
	duration time.Duration
	rate     int
	profile  string
	json     bool
}

// result is what a scenario measured. A is the base, B what is compared with it.
type result struct {
	Scenario string  `json:"scenario"`
	A        cost    `json:"a"`
	B        cost    `json:"b"`
	Ratio    float64 `json:"ratio"` // median of A/B over the pairs of rounds: above 1, B is cheaper
	Min      float64 `json:"min"`
	Max      float64 `json:"max"`
	Aim      float64 `json:"aim,omitempty"`
	TTFT     []ttft  `json:"ttft,omitempty"` // instead of A and B: each side's time to the first token
}

// cost is what one side took, per request; medians over its rounds. Requests, Failed and Wasted are sums.
type cost struct {
	Name     string  `json:"name"`
	CPU      float64 `json:"cpu_us,omitempty"`
	Allocs   float64 `json:"allocs,omitempty"`
	Bytes    float64 `json:"bytes,omitempty"`
	Held     float64 `json:"held,omitempty"`     // bytes of heap and stack, per open stream
	RSS      float64 `json:"rss,omitempty"`      // resident bytes, per open stream
	Rate     float64 `json:"rate,omitempty"`     // events a second, of all open streams
	PerRead  float64 `json:"per_read,omitempty"` // events that come to the caller at once
	Requests int64   `json:"requests"`
	Failed   int64   `json:"failed"`
	Wasted   int64   `json:"wasted"` // calls that an upstream had to refuse
}

func main() {
	var o options
	flag.StringVar(&o.caddy, "caddy", "", "Caddy binary to measure; built from ./cmd/caddy if empty")
	flag.StringVar(&o.run, "run", "", "run the scenarios whose names contain this")
	flag.IntVar(&o.rounds, "rounds", 10, "pairs of rounds per scenario")
	flag.DurationVar(&o.duration, "duration", time.Second, "length of a round; twice that for streams")
	flag.IntVar(&o.rate, "rate", 50, "events a second in each of the 1,000 streams of sse-1000x…")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of Caddy under the B side's load to this file, and the A side's beside it")
	flag.BoolVar(&o.json, "json", false, "write the results as JSON")
	flag.Parse()
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	dir, err := os.MkdirTemp("", "llm_failover-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.caddy == "" {
		if o.caddy, err = build(dir); err != nil {
			return err
		}
	}
	if o.rate < 1 {
		return errors.New("-rate must be at least 1")
	}
	up, err := startUpstream()
	if err != nil {
		return err
	}
	var results []result
	var shown string
	for _, s := range scenarios {
		if s.open > 0 {
			s.name += strconv.Itoa(o.rate)
			s.load.pace = time.Second / time.Duration(o.rate)
		}
		if !strings.Contains(s.name, o.run) {
			continue
		}
		if err := needFiles(2*max(s.held, s.open) + 200); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		measure := s.compare
		switch {
		case s.held > 0:
			measure = s.memory
		case s.ttft:
			measure = s.firstToken
		}
		r, err := measure(o, up, dir)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if !o.json {
			if h := r.header(); h != shown {
				fmt.Println(h)
				shown = h
			}
			fmt.Print(r)
		}
		results = append(results, r)
	}
	if len(results) == 0 {
		return fmt.Errorf("no scenario's name contains %q", o.run)
	}
	if o.json {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "\t")
		return enc.Encode(results)
	}
	return nil
}

const header = "" +
	"scenario              side                    µs CPU   allocs     KiB  requests  failed  wasted  A/B median (min–max)  aim\n" +
	"--------------------  ---------------------  -------  -------  ------  --------  ------  ------  --------------------  -----"

func (r result) header() string {
	if r.TTFT != nil {
		return ttftHeader
	}
	return header
}

// String is the result's lines of the table.
func (r result) String() string {
	if r.TTFT != nil {
		return r.ttft()
	}
	aim := ""
	if r.Aim > 0 {
		aim = fmt.Sprintf("≥ %.2f", r.Aim)
	}
	var b strings.Builder
	for i, c := range []cost{r.A, r.B} {
		name, verdict := r.Scenario, ""
		if i == 1 {
			name, verdict = "", fmt.Sprintf("%.2f (%.2f–%.2f)", r.Ratio, r.Min, r.Max)
		}
		cpu, kib := fmt.Sprintf("%.1f", c.CPU), c.Bytes/1024
		if c.Held > 0 {
			cpu, kib = "", c.Held/1024
		}
		fmt.Fprintf(&b, "%-20s  %-21s  %7s  %7.0f  %6.1f  %8d  %6d  %6d", name, c.Name, cpu, c.Allocs, kib, c.Requests, c.Failed, c.Wasted)
		if i == 1 {
			fmt.Fprintf(&b, "  %-20s  %s", verdict, aim)
		}
		if c.Rate > 0 {
			fmt.Fprintf(&b, "  %.0f/s, %.2f a read", c.Rate, c.PerRead)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// judge sets the ratio from what a request took on both sides, round by round.
func (r *result) judge(took [2][]float64) {
	var ratios []float64
	for i, a := range took[0] {
		ratios = append(ratios, a/took[1][i])
	}
	r.Ratio, r.Min, r.Max = median(ratios), slices.Min(ratios), slices.Max(ratios)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// needFiles reports whether a process may have n files open, where the system tells. That the soft limit be no obstacle needs
// nothing done: a Go program, Caddy too, raises its own to the hard one as it starts.
func needFiles(n int) error {
	limits, _ := os.ReadFile("/proc/self/limits")
	_, line, _ := strings.Cut(string(limits), "\nMax open files")
	if f := strings.Fields(line); len(f) > 1 {
		if hard, err := strconv.Atoi(f[1]); err == nil && hard < n {
			return fmt.Errorf("%d open files are needed, and the hard limit (ulimit -Hn) is %d", n, hard)
		}
	}
	return nil
}
