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
	"fmt"
	"strings"
	"time"
)

// scenario compares two sites under one kind of load.
type scenario struct {
	name string
	load load
	a, b site
	aim  float64 // the least A/B that is wanted
	held int     // compare what so many open streams hold, not what requests cost
	open int     // compare what an event costs in so many open streams
	ttft bool    // compare the time to the first token
}

// site is a handler that calls the upstream.
type site struct {
	name   string
	config func(up *upstream) string // its directive
}

var (
	plainProxy = site{"reverse_proxy", func(up *upstream) string { return proxy(up, "") }}
	// holdingProxy holds bodies as a proxy must that wants to send them again.
	holdingProxy = site{"rp request_buffers", func(up *upstream) string { return proxy(up, "request_buffers 32MiB") }}
	// switchingProxy is reverse_proxy set up for failover.
	switchingProxy = site{"rp for failover", func(up *upstream) string {
		return fmt.Sprintf(`reverse_proxy %s %s {
			header_up Authorization "Bearer %s"
			transport http {
				keepalive_idle_conns_per_host 512
			}
			request_buffers 32MiB
			lb_policy first
			lb_retries 1
			lb_retry_match expression `+"`{rp.status_code} == 429 || {rp.status_code} >= 500 || {rp.is_transport_error}`"+`
			fail_duration %s
			max_fails 1
			unhealthy_status 429 5xx
		}`, up.limited, up.addr, goodKey, limitedFor)
	}}
	failover = site{"llm_failover", func(up *upstream) string { return pool(up, "", "k1 "+goodKey+"\nk2 "+goodKey) }}
	// failoverLimited has a first key that is always limited.
	failoverLimited = site{"llm_failover", func(up *upstream) string { return pool(up, "", "k1 "+limitedKey+"\nk2 "+goodKey) }}
)

func proxy(up *upstream, more string) string {
	return fmt.Sprintf(`reverse_proxy %s {
		header_up Authorization "Bearer %s"
		transport http {
			keepalive_idle_conns_per_host 512
		}
		%s
	}`, up.addr, goodKey, more)
}

func pool(up *upstream, more, keys string) string {
	return fmt.Sprintf("llm_failover http://%s {\nauth bearer\n%s\nkeys {\n%s\n}\n}", up.addr, more, keys)
}

// pooled is llm_failover with n good keys.
func pooled(n int, selection string) site {
	return site{fmt.Sprintf("%d keys", n), func(up *upstream) string {
		var keys strings.Builder
		for i := range n {
			fmt.Fprintf(&keys, "k%d %s%d\n", i, goodKey, i)
		}
		return pool(up, fmt.Sprintf("pool of%d\nselect %s", n, selection), keys.String())
	}}
}

const (
	atOnce      = 8                    // callers
	openStreams = 1000                 // in the memory scenarios, and in sse-1000x50
	streaming   = 48                   // callers that stream, which mostly wait
	pace        = 2 * time.Millisecond // between the chunks of a stream, so that they do not melt together
	endless     = 1 << 30              // events: as long as the caller stays
)

var scenarios = []scenario{
	{name: "noise", load: load{body: chatRequest(4 << 10), callers: atOnce}, a: plainProxy, b: plainProxy},
	{name: "json-4k", load: load{body: chatRequest(4 << 10), callers: atOnce}, a: plainProxy, b: failover, aim: 1},
	{name: "json-4k-buffers", load: load{body: chatRequest(4 << 10), callers: atOnce}, a: holdingProxy, b: failover, aim: 1},
	{name: "json-256k", load: load{body: chatRequest(256 << 10), callers: atOnce}, a: plainProxy, b: failover, aim: 1},
	{name: "json-256k-many", load: load{body: manyMessages(256 << 10), callers: atOnce}, a: plainProxy, b: failover, aim: 1},
	{name: "json-256k-buffers", load: load{body: chatRequest(256 << 10), callers: atOnce}, a: holdingProxy, b: failover, aim: 1},
	{name: "sse-chat", load: load{body: chatRequest(4 << 10), stream: true, pace: pace, callers: streaming}, a: plainProxy, b: failover, aim: 0.9},
	{name: "sse-messages", load: load{body: chatRequest(4 << 10), path: messagesPath, stream: true, pace: pace, callers: streaming}, a: plainProxy, b: failover, aim: 0.9},
	keys("first"), keys("round_robin"), keys("random"), keys("weighted_random"), keys("least_in_flight"), keys("sticky {http.request.header.X-Session}"),
	{name: "limited", load: load{body: chatRequest(4 << 10), callers: atOnce}, a: switchingProxy, b: failoverLimited, aim: 1},
	{name: "memory", load: load{body: chatRequest(4 << 10), stream: true, pace: time.Second}, a: plainProxy, b: failover, aim: 0.8, held: openStreams},
	{name: "memory-256k", load: load{body: chatRequest(256 << 10), stream: true, pace: time.Second}, a: plainProxy, b: failover, aim: 0.8, held: openStreams},
	{name: "memory-5000", load: load{body: chatRequest(4 << 10), stream: true, events: 5, pace: 100 * time.Millisecond, comments: 10 * time.Second},
		a: plainProxy, b: failover, aim: 0.91, held: 5000},
	{name: "sse-1000x", load: load{body: chatRequest(4 << 10), stream: true, events: endless}, a: plainProxy, b: failover, aim: 0.91, open: openStreams},
	{name: "ttft", load: load{body: chatRequest(4 << 10), stream: true, events: 1, callers: 1}, a: plainProxy, b: failover, ttft: true},
	{name: "ttft-50", load: load{body: chatRequest(4 << 10), stream: true, events: 5, pace: 25 * time.Millisecond, callers: 50}, a: plainProxy, b: failover, ttft: true},
}

func keys(selection string) scenario {
	policy, _, _ := strings.Cut(selection, " ")
	return scenario{
		name: "keys-" + policy, load: load{body: chatRequest(4 << 10), callers: atOnce},
		a: pooled(2, selection), b: pooled(1000, selection), aim: 0.95,
	}
}

// compare measures the CPU time and allocations of a request on both sides, in short rounds in turn: what else the
// machine does then falls on both.
func (s *scenario) compare(o *options, up *upstream, dir string) (result, error) {
	r := result{Scenario: s.name, Aim: s.aim, A: cost{Name: s.a.name}, B: cost{Name: s.b.name}}
	c, err := startCaddy(o.caddy, dir, s.a.config(up), s.b.config(up))
	if err != nil {
		return r, err
	}
	defer c.stop()
	sides := [2]*cost{&r.A, &r.B}
	length := o.duration
	if s.load.stream { // which take less CPU time, told in steps of 10 ms
		length *= 2
	}
	var cpu, allocs, bytes, rate, melted [2][]float64
	for k := range o.rounds + 1 {
		for _, i := range [][]int{{0, 1}, {1, 0}}[k%2] {
			if err := c.collect(); err != nil {
				return r, err
			}
			wasted := up.wasted.Load()
			before, after, done, failed, perRead, err := s.round(c, i, length)
			if err != nil {
				return r, err
			}
			sides[i].Requests += done + failed
			sides[i].Failed += failed
			sides[i].Wasted += up.wasted.Load() - wasted
			if k == 0 { // to warm up
				continue
			}
			n := float64(max(done, 1))
			cpu[i] = append(cpu[i], (after.cpu-before.cpu)/n*1e6)
			allocs[i] = append(allocs[i], (after.mallocs-before.mallocs)/n)
			bytes[i] = append(bytes[i], (after.allocated-before.allocated)/n)
			rate[i], melted[i] = append(rate[i], n/length.Seconds()), append(melted[i], perRead)
		}
	}
	for i, side := range sides {
		side.CPU, side.Allocs, side.Bytes = median(cpu[i]), median(allocs[i]), median(bytes[i])
		if s.open > 0 {
			side.Rate, side.PerRead = median(rate[i]), median(melted[i])
		}
	}
	r.judge(cpu)
	if o.profile == "" {
		return r, nil
	}
	for i, file := range []string{o.profile + ".a", o.profile} {
		if err := c.profile(file, func(d time.Duration) { _, _, _, _, _, _ = s.round(c, i, d) }); err != nil {
			return r, err
		}
	}
	return r, nil
}

// round has side i do its load for d. Of open streams, n counts the events.
func (s *scenario) round(c *caddyProcess, i int, d time.Duration) (before, after sample, n, failed int64, perRead float64, err error) {
	if s.open > 0 {
		var came meter
		stop := s.load.open(c.sites[i], s.open, &came)
		defer func() { failed = stop() }()
		time.Sleep(time.Second) // what opening took is over
		bytes, reads := came.bytes.Load(), came.reads.Load()
		if before, err = c.sample(); err != nil {
			return
		}
		time.Sleep(d)
		n = (came.bytes.Load() - bytes) / int64(len(chatStream[1]))
		perRead = float64(n) / float64(max(came.reads.Load()-reads, 1))
		after, err = c.sample()
		return
	}
	if before, err = c.sample(); err != nil {
		return
	}
	n, failed = s.load.run(c.sites[i], d)
	after, err = c.sample()
	return
}

// memory measures what an open stream holds: heap and stacks in use after a collection, with all streams open and
// served a while, less what was in use before. Each time it takes a new process, for memory once used stays in use.
func (s *scenario) memory(o *options, up *upstream, dir string) (result, error) {
	r := result{Scenario: s.name, Aim: s.aim, A: cost{Name: s.a.name}, B: cost{Name: s.b.name}}
	var held [2][]float64
	for range min(o.rounds, 3) {
		for i, side := range []*cost{&r.A, &r.B} {
			before, after, failed, err := s.hold(o, dir, []site{s.a, s.b}[i].config(up))
			if err != nil {
				return r, err
			}
			side.Requests += int64(s.held)
			side.Failed += failed
			held[i] = append(held[i], (after.inUse-before.inUse)/float64(s.held))
			side.Held, side.RSS = median(held[i]), (after.rss-before.rss)/float64(s.held)
		}
	}
	r.judge(held)
	return r, nil
}

// hold samples a new Caddy before and after many streams are opened.
func (s *scenario) hold(o *options, dir, config string) (before, after sample, failed int64, err error) {
	c, err := startCaddy(o.caddy, dir, config)
	if err != nil {
		return before, after, 0, err
	}
	defer c.stop()
	plain := load{body: s.load.body, callers: atOnce}
	plain.run(c.sites[0], o.duration)
	if err = c.collect(); err != nil {
		return before, after, 0, err
	}
	if before, err = c.sample(); err != nil {
		return before, after, 0, err
	}
	stop := s.load.open(c.sites[0], s.held, &meter{})
	defer func() { failed = stop() }()
	time.Sleep(3*s.load.pace + s.load.comments*6/5)
	if err = c.collect(); err != nil {
		return before, after, 0, err
	}
	after, err = c.sample()
	return before, after, failed, err
}
