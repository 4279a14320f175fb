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
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// The differential tests ask an upstream for random answers, through the gateway and directly, and want the same. A
// failure tells its seed and case: DIFFERENTIAL=<seed>/<case> runs that case alone, DIFFERENTIAL_CASES more of them.

// eachCase runs cases in a few goroutines at once.
func eachCase(t *testing.T, cases int, f func(t testing.TB, id string, d dice)) {
	t.Helper()
	seed, from := uint64(time.Now().UnixNano()), 0
	if n, err := strconv.Atoi(os.Getenv("DIFFERENTIAL_CASES")); err == nil {
		cases = n
	}
	if s, one, ok := strings.Cut(os.Getenv("DIFFERENTIAL"), "/"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
		if ok {
			if from, err = strconv.Atoi(one); err != nil {
				t.Fatal(err)
			}
			cases = from + 1
		}
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range next {
				id := fmt.Sprintf("%d/%d", seed, i)
				one := &caseT{TB: t}
				if f(one, id, newDice(seed, uint64(i))); one.failed {
					t.Logf("to see it again: DIFFERENTIAL=%s go test -run '^%s$' .", id, t.Name())
				}
			}
		})
	}
	for i := from; i < cases && !t.Failed(); i++ {
		next <- i
	}
	close(next)
	wg.Wait()
}

// caseT knows whether its case has failed.
type caseT struct {
	testing.TB
	failed bool
}

func (t *caseT) Errorf(format string, args ...any) {
	t.failed = true
	t.TB.Helper()
	t.TB.Errorf(format, args...)
}

// caseField tells the upstream which case a call belongs to.
const caseField = "X-Case"

// script answers the calls of a case.
type script struct {
	first reply // k1's answer; do is nil: it answers as k2 does
	reply
}

// scripted is an upstream for cases: with k1's credential a case's first reply, with others its second.
type scripted struct {
	*upstream
	cases sync.Map // of *script
}

func newScripted(t *testing.T) *scripted {
	u := &scripted{upstream: newUpstream(t)}
	for _, key := range []string{"k1", "k2", "none"} {
		u.on(key, reply{do: func(w http.ResponseWriter, r *http.Request, c *call) {
			found, known := u.cases.Load(r.Header.Get(caseField))
			if !known {
				t.Errorf("a call of no case: %v", r.Header)
				return
			}
			s := found.(*script)
			if key == "k1" && s.first.do != nil {
				s.first.do(w, r, c)
				return
			}
			s.do(w, r, c)
		}})
	}
	return u
}

// of returns the calls of a case with a credential of ours, in order, and their keys.
func (u *scripted) of(id string) (calls []*call, order string) {
	for _, c := range u.asked("") {
		if c.header.Get(caseField) == id && c.key != "none" {
			calls, order = append(calls, c), order+" "+c.key
		}
	}
	return calls, strings.TrimSpace(order)
}

// site is a pool of two keys whose failures have no consequences, behind `encode` for who asks for it.
func (u *scripted) site(more string) string {
	return "@encode header X-Encode yes\nencode @encode gzip\nllm_failover " + u.URL + " {\n" + keysOf("k1", "k2") + more +
		"retry {\nsame_key 1ms\nbackoff 1ms 2ms\nbudget 100 100000\n}\ncircuit {\nthreshold 1000000\n}\n}"
}

// failFirst is how a first attempt may fail, in ways that another key cures, and in which order the keys are asked. A
// call that breaks on a kept connection is made once more.
func (d dice) failFirst(f *family, repeatable bool) (reply, []string) {
	said := pick(d, fails(500, "oops"), limited(), says(503, ""))
	switch {
	case !repeatable || d.percent(40):
		return said, []string{"k1 k2"}
	case f == nil || d.percent(20):
		return just(cut{}), []string{"k1 k2", "k1 k1 k2"}
	}
	return pick(d, says(200, "<html>no</html>"), events(f.begin, cut{}), events(f.begin, f.failed), events(": ping\n\n")), []string{"k1 k2"}
}

var atOnce = []string{"k1"}

// fields are header fields of an answer.
func (d dice) fields(h http.Header) {
	for _, f := range [][2]string{
		{"X-Request-Id", "req_" + strconv.Itoa(d.IntN(1e9))}, {"Openai-Processing-Ms", "12"}, {"X-Ratelimit-Remaining-Tokens", "149984"}, {"Etag", `"abc"`},
		{"Cache-Control", "no-store"}, {"Set-Cookie", "a=b; Path=/"}, {"Set-Cookie", "c=d"}, {"Content-Language", "de"}, {"X-Odd", "a\tb \xc3\xbc"}, {"Server", "upstream"},
		{"Content-Disposition", `attachment; filename="ü.wav"`}, {"Anthropic-Organization-Id", "org"}, {"Strict-Transport-Security", "max-age=1"}, {"X-Empty", ""},
	} {
		if d.percent(40) {
			h.Add(f[0], f[1])
		}
	}
}

// way is how a caller asks.
type way struct {
	client *http.Client
	encode bool
}

func (d dice) way(s *server) way { return way{pick(d, s.client, s.two), d.percent(30)} }

// both asks the gateway and the upstream.
func (s *server) both(u *scripted, w way, id, method, path, body string) (got, want *received) {
	ask := func(client *http.Client, base string, headers ...string) *received {
		var b io.Reader
		if body != "" {
			b = strings.NewReader(body)
		}
		r := s.request(method, path, b, headers...)
		to := s.request(method, path, nil).URL
		to.Host = strings.TrimPrefix(base, "http://")
		r.URL, r.Host = to, to.Host
		return s.do(client, r)
	}
	encode := "no"
	if w.encode {
		encode = "yes"
	}
	return ask(w.client, s.url, caseField, id, "X-Encode", encode), ask(s.client, u.URL, caseField, id)
}

// same compares two answers. Length: both are the same bytes on the wire, as far as we know, so their lengths must be.
func same(t testing.TB, id string, w way, got, want *received, length bool) {
	t.Helper()
	at := firstDifference(got.body, want.body)
	if got.status != want.status || at >= 0 || got.err != nil || want.err != nil {
		t.Errorf("case %s (HTTP/%d, encode %v): %d, %d bytes (%v), want %d, %d bytes (%v); they differ from %d on:\n got …%q\nwant …%q", id, got.proto, w.encode,
			got.status, len(got.body), got.err, want.status, len(want.body), want.err, at, around(got.body, at), around(want.body, at))
	}
	differ := map[string]bool{"Date": true, "Server": want.header["Server"] == nil, "Via": true, "X-Should-Retry": want.status >= 400}
	if !length || want.header["Content-Length"] == nil {
		differ["Content-Length"] = true
	}
	if w.encode { // it changes these
		differ["Etag"], differ["Vary"], differ["Content-Length"], differ["Accept-Ranges"] = true, true, true, true
		differ["Content-Type"] = want.header["Content-Type"] == nil
	}
	for _, h := range []http.Header{got.header, want.header} {
		for name := range h {
			if !differ[name] && !slices.Equal(got.header[name], want.header[name]) {
				differ[name] = true
				t.Errorf("case %s (HTTP/%d, encode %v): %s is %q, want %q", id, got.proto, w.encode, name, got.header[name], want.header[name])
			}
		}
	}
}

func firstDifference(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) == len(b) {
		return -1
	}
	return min(len(a), len(b))
}

func around(s string, at int) string { return s[min(max(at-60, 0), len(s)):min(max(at+60, 0), len(s))] }

// TestSameStreams: what the caller gets of a stream is what the upstream sent.
func TestSameStreams(t *testing.T) {
	u := newScripted(t)
	s := serve(t, u.site(""))
	eachCase(t, 160, func(t testing.TB, id string, d dice) {
		f, stream, path := d.dialectStream()
		header := make(http.Header)
		d.fields(header)
		header.Set("Content-Type", stream.kind)
		zip := d.percent(15)
		writes := d.Uint64()
		sc := script{reply: reply{do: func(w http.ResponseWriter, _ *http.Request, _ *call) {
			writeAnswer(w, 200, header, stream.raw, zip, newDice(writes, 0))
		}}}
		order := atOnce
		if d.percent(25) {
			sc.first, order = d.failFirst(f, true)
		}
		u.cases.Store(id, &sc)
		w := d.way(s)
		got, want := s.both(u, w, id, http.MethodPost, path, f.request)
		if want.body != stream.raw {
			t.Errorf("case %s: the direct answer is not what was sent (%v)", id, want.err)
		}
		same(t, id, w, got, want, false)
		if _, asked := u.of(id); !slices.Contains(order, asked) {
			t.Errorf("case %s: calls %q, want %q", id, asked, order)
		}
	})
}

// writeAnswer writes an answer in random writes.
func writeAnswer(w http.ResponseWriter, status int, header http.Header, body string, zip bool, d dice) {
	for name, values := range header {
		w.Header()[name] = slices.Clone(values)
	}
	write := func(b []byte) error { _, err := w.Write(b); return err }
	if !zip {
		w.WriteHeader(status)
		d.drip(w, write, body)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z := gzip.NewWriter(w)
	d.drip(w, func(b []byte) error {
		_, err := z.Write(b)
		if err == nil && d.percent(70) {
			err = z.Flush()
		}
		return err
	}, body)
	z.Close()
}

// TestCutStreams: a stream that is cut after its first content does not end as if it were whole, unless its finish
// reason had been sent; the caller gets every whole event, then an error event that its client can read, and no
// terminal marker that was not sent.
func TestCutStreams(t *testing.T) {
	u := newScripted(t)
	s := serve(t, u.site(""))
	eachCase(t, 160, func(t testing.TB, id string, d dice) {
		f, stream, path := d.dialectStream()
		size := stream.content() + d.IntN(len(stream.raw)-stream.content())
		if d.percent(20) { // just after an event
			size = max(stream.until(size), stream.content())
		}
		if strings.HasSuffix(stream.raw[:size], "\r") && stream.raw[size] == '\n' {
			if size++; size == len(stream.raw) { // else it were a matter of opinion whether the line has ended
				size -= 2
			}
		}
		own := ""
		if d.percent(20) && path == f.path && !stream.finished(size, true) { // it says so itself
			size = max(stream.until(size), stream.content())
			own = f.failed
			if d.percent(30) {
				own = strings.TrimRight(own, "\n")
			}
		}
		clean, zip, writes := d.percent(30) || own != "", d.percent(15), d.Uint64()
		u.cases.Store(id, &script{reply: reply{do: func(w http.ResponseWriter, _ *http.Request, _ *call) {
			writeAnswer(w, 200, http.Header{"Content-Type": {stream.kind}}, stream.raw[:size]+own, zip, newDice(writes, 0))
			if w.(http.Flusher).Flush(); !clean {
				panic(http.ErrAbortHandler)
			}
		}}})
		w := d.way(s)
		got, _ := s.both(u, w, id, http.MethodPost, path, f.request)
		if _, asked := u.of(id); asked != "k1" || got.status != 200 {
			t.Errorf("case %s (%s, HTTP/%d, encode %v, clean end %v): %d, calls %q\nsent %q", id, f.name, got.proto, w.encode, clean, got.status, asked, stream.raw[:size])
			return
		}
		problem := ""
		if own != "" {
			if events := dispatched(got.body); got.err == nil || !strings.HasPrefix(got.body, stream.raw[:size]+own) || events[len(events)-1][1] != dispatched(f.failed)[0][1] {
				problem = "it does not end with the upstream's error event"
			}
		} else {
			problem = judgeCut(f.name, stream, size, clean, got)
		}
		if problem != "" {
			t.Errorf("case %s (%s, HTTP/%d, encode %v, clean end %v, %d of %d bytes): %s\nsent …%q\ngot …%q", id, f.name, got.proto, w.encode, clean, size, len(stream.raw), problem,
				around(stream.raw[:size], size), got.body[max(0, len(got.body)-400):])
		}
	})
}

// judgeCut says what is wrong with what a caller got of a stream of which the upstream sent size bytes.
func judgeCut(name string, stream randomStream, size int, clean bool, got *received) string {
	whole := stream.until(size)
	finished := stream.finished(size, false)
	if got.err == nil {
		// Where the upstream's bytes end cleanly, so does its last line.
		if !stream.finished(size, clean) {
			return "it ended cleanly"
		}
		if got.body != stream.raw[:whole] && got.body != stream.raw[:size] {
			return "the bytes are not those that were sent"
		}
		return ""
	}
	if finished {
		return fmt.Sprintf("it was finished, but got %v", got.err)
	}
	rest, ok := strings.CutPrefix(got.body, stream.raw[:whole])
	if !ok {
		return "not all whole events have come"
	}
	if stream.kind[0] == 'a' {
		all := gjson.Parse(got.body + "]")
		if !gjson.Valid(got.body+"]") || !readableError("", all.Array()[len(all.Array())-1].Raw, dialect.Gemini) {
			return "there is no error element at the end"
		}
		return ""
	}
	events := dispatched(got.body)
	if len(events) == 0 || !strings.HasSuffix(rest, "\n\n") || !readableError(events[len(events)-1][0], events[len(events)-1][1], dialect.Dialect(name)) {
		return "a client sees no error event at the end"
	}
	for _, e := range events[:len(events)-1] {
		if signal := dialect.Dialect(name).Event(e[0], []byte(e[1])); signal&dialect.Terminal != 0 {
			return "it has a terminal marker"
		}
	}
	return ""
}

// dispatched reads a stream as the HTML standard (9.2.6) has it: name and data of each event, none for what has no
// blank line after it.
func dispatched(stream string) (events [][2]string) {
	stream = strings.TrimPrefix(stream, "\xef\xbb\xbf")
	stream = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream)
	lines := strings.Split(stream, "\n")
	name, data := "", []string(nil)
	for _, line := range lines[:len(lines)-1] {
		if line == "" {
			if data != nil {
				events = append(events, [2]string{name, strings.Join(data, "\n")})
			}
			name, data = "", nil
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimPrefix(value, " "); field {
		case "event":
			name = value
		case "data":
			data = append(data, value)
		}
	}
	return events
}

// readableError reports whether a dialect's clients understand an event as an error.
func readableError(name, data string, d dialect.Dialect) bool {
	e := gjson.Parse(data)
	if !gjson.Valid(data) {
		return false
	}
	text := func(paths ...string) bool {
		for _, p := range paths {
			if v := e.Get(p); v.Type != gjson.String || v.String() == "" {
				return false
			}
		}
		return true
	}
	switch d {
	case dialect.Messages:
		return name == "error" && e.Get("type").String() == "error" && text("error.type", "error.message")
	case dialect.Responses:
		return name == "error" && e.Get("type").String() == "error" && text("code", "message")
	case dialect.Gemini:
		return name == "" && e.Get("error.code").Int() >= 400 && text("error.message", "error.status")
	}
	return name == "" && text("error.message", "error.type", "error.code")
}
