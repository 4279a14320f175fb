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

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// ttft is a side's time to the first token, in microseconds: the median and 99th percentile of each round, and of these
// the medians.
type ttft struct {
	Name        string  `json:"name"`
	Requests    int64   `json:"requests"`
	Failed      int64   `json:"failed"`
	Median      float64 `json:"median_us"`
	P99         float64 `json:"p99_us"`
	AddedMedian span    `json:"added_median_us"` // to a direct call's
	AddedP99    span    `json:"added_p99_us"`
	MoreMedian  span    `json:"more_median_us"` // than reverse_proxy's
	MoreP99     span    `json:"more_p99_us"`
}

// span is a difference, round by round.
type span struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spanOf(of, base []float64) span {
	var d []float64
	for i := range of {
		d = append(d, of[i]-base[i])
	}
	return span{median(d), slices.Min(d), slices.Max(d)}
}

func (s span) String() string { return fmt.Sprintf("%+.0f (%+.0f–%+.0f)", s.Median, s.Min, s.Max) }

// firstToken measures the time to the first token. Every caller asks each side in turn, in random order, so that all share
// what else the machine does. reverse_proxy is there twice: what differs then is noise.
func (s *scenario) firstToken(o *options, up *upstream, dir string) (result, error) {
	r := result{Scenario: s.name, TTFT: []ttft{{Name: "direct"}, {Name: s.a.name}, {Name: s.a.name + " again"}, {Name: s.b.name}}}
	c, err := startCaddy(o.caddy, dir, s.a.config(up), s.a.config(up), s.b.config(up))
	if err != nil {
		return r, err
	}
	defer c.stop()
	sites := append([]string{"http://" + up.addr}, c.sites...)
	medians, p99s := make([][]float64, len(sites)), make([][]float64, len(sites))
	for k := range o.rounds + 1 {
		if err := c.collect(); err != nil {
			return r, err
		}
		took, failed := s.load.firstTokens(sites, 4*o.duration)
		for i := range sites {
			side := &r.TTFT[i]
			side.Requests += int64(len(took[i])) + failed[i]
			side.Failed += failed[i]
			if len(took[i]) == 0 {
				return r, errors.New(side.Name + " does not answer")
			}
			if k > 0 { // else to warm up
				slices.Sort(took[i])
				medians[i] = append(medians[i], median(took[i]))
				p99s[i] = append(p99s[i], took[i][len(took[i])*99/100])
			}
		}
	}
	for i := range sites {
		side := &r.TTFT[i]
		side.Median, side.P99 = median(medians[i]), median(p99s[i])
		side.AddedMedian, side.AddedP99 = spanOf(medians[i], medians[0]), spanOf(p99s[i], p99s[0])
		side.MoreMedian, side.MoreP99 = spanOf(medians[i], medians[1]), spanOf(p99s[i], p99s[1])
	}
	return r, nil
}

// firstTokens lets the callers ask the sites in turn until the time is over, and returns each site's times in microseconds.
func (l *load) firstTokens(sites []string, d time.Duration) (took [][]float64, failed []int64) {
	took, failed = make([][]float64, len(sites)), make([]int64, len(sites))
	var mu sync.Mutex
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	for range l.callers {
		wg.Go(func() {
			for time.Now().Before(end) {
				for _, i := range rand.Perm(len(sites)) {
					t, err := l.firstToken(sites[i])
					mu.Lock()
					if err != nil {
						failed[i]++
					} else {
						took[i] = append(took[i], float64(t.Nanoseconds())/1e3)
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return took, failed
}

// firstToken asks, and reads the answer to its end, for the next request to find the connection.
func (l *load) firstToken(site string) (took time.Duration, err error) {
	r := l.request(context.Background(), site)
	var got []byte
	begin := time.Now()
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for buf := make([]byte, 4<<10); err == nil && !bytes.Contains(got, []byte(`"content":" tide"`)); {
		var n int
		n, err = resp.Body.Read(buf)
		got = append(got, buf[:n]...)
	}
	took = time.Since(begin)
	rest, _ := io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK || int64(len(got))+rest != l.want() {
		return 0, errors.New("not the whole answer")
	}
	return took, nil
}

const ttftHeader = "\n" +
	"                                                                                  more than direct  more than reverse_proxy (min–max)\n" +
	"time to first token   side                   requests  failed  median µs   p99 µs   median      p99  median             p99                     aim\n" +
	"--------------------  ---------------------  --------  ------  ---------  -------  -------  -------  -----------------  ----------------------  ---"

// ttft is the result's lines of the table.
func (r result) ttft() string {
	var b strings.Builder
	for i, t := range r.TTFT {
		fmt.Fprintf(&b, "%-20s  %-21s  %8d  %6d  %9.0f  %7.0f", []string{r.Scenario, "", "", ""}[i], t.Name, t.Requests, t.Failed, t.Median, t.P99)
		if i > 0 {
			fmt.Fprintf(&b, "  %7.0f  %7.0f", t.AddedMedian.Median, t.AddedP99.Median)
		}
		if i > 1 {
			fmt.Fprintf(&b, "  %-17s  %-22s", t.MoreMedian, t.MoreP99)
		}
		if i == 3 {
			b.WriteString("  median: noise, p99: < 1000")
		}
		b.WriteByte('\n')
	}
	return b.String()
}
