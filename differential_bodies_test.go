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
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSameBodies: so it is with answers that are no streams.
func TestSameBodies(t *testing.T) {
	u := newScripted(t)
	s := serve(t, u.site(""))
	eachCase(t, 160, func(t testing.TB, id string, d dice) {
		a := d.plainAnswer()
		header := make(http.Header)
		d.fields(header)
		header["Content-Type"] = a.kind
		zip := a.body != "" && d.percent(20)
		length := !zip && d.percent(50)
		if length && a.status != http.StatusNoContent && a.status != http.StatusNotModified {
			header.Set("Content-Length", strconv.Itoa(len(a.body)))
		}
		writes := d.Uint64()
		sc := script{reply: reply{do: func(w http.ResponseWriter, r *http.Request, _ *call) {
			if r.Method == http.MethodHead || a.status == http.StatusNoContent || a.status == http.StatusNotModified {
				writeAnswer(w, a.status, header, "", false, newDice(writes, 0))
				return
			}
			writeAnswer(w, a.status, header, a.body, zip, newDice(writes, 0))
		}}}
		order := atOnce
		if d.percent(20) {
			sc.first, order = d.failFirst(nil, false)
		}
		u.cases.Store(id, &sc)
		w := d.way(s)
		got, want := s.both(u, w, id, a.method, a.path, a.request)
		same(t, id, w, got, want, length)
		if _, asked := u.of(id); !slices.Contains(order, asked) {
			t.Errorf("case %s: calls %q, want %q; %s %s answers %d %v %.300q", id, asked, order, a.method, a.path, a.status, a.kind, a.body)
		}
	})
}

// plainAnswer is a random answer that is no stream, and what it answers.
type plainAnswer struct {
	method, path, request string
	status                int
	kind                  []string
	body                  string
}

func (d dice) plainAnswer() plainAnswer {
	a := plainAnswer{method: http.MethodPost, status: pick(d, 200, 200, 200, 201, 202), kind: []string{"application/json"}}
	if d.percent(30) {
		a.kind = pick(d, nil, []string{"application/json; charset=utf-8"}, []string{"application/vnd.api+json"})
	}
	blob := func() string {
		b := make([]byte, pick(d, 0, 1, 100, 100, 5000, 5000, 70_000, 600_000, 1<<20)*(1+d.IntN(100))/100)
		d.fill(b)
		return string(b)
	}
	switch d.IntN(6) {
	case 0, 1: // an answer in the dialect, with odd white space and large at times
		f := &families[d.IntN(4)]
		a.path, a.request = strings.Replace(strings.TrimSuffix(f.path, "?alt=sse"), ":stream", ":", 1), strings.ReplaceAll(f.request, streaming, "")
		a.path = strings.Replace(a.path, "GenerateContent", "generateContent", 1)
		text := d.text(pick(d, 10, 100, 1000, 1000, 10_000, 100_000, 900_000))
		a.body = d.blank() + strings.Replace(f.whole, "%q", text, 1)
		a.body = a.body[:len(a.body)-1] + d.blank() + `,"x_more":` + d.value(3) + d.blank() + "}" + d.blank()
	case 2: // JSON of another kind
		a.method, a.path = pick(d, http.MethodGet, http.MethodPost), pick(d, "/v1/models", "/v1/embeddings", "/v1/batches", "/v1/files?purpose=x%20y")
		a.body = d.blank() + `{"object":"list","data":[` + d.value(3) + `],"error":null}` + d.blank()
	case 3: // bytes
		a.method, a.path = http.MethodPost, "/v1/audio/speech"
		if d.percent(50) {
			a.method, a.path = http.MethodGet, "/v1/files/f-1/content"
		}
		a.kind, a.body = pick(d, []string{"audio/mpeg"}, []string{"application/octet-stream"}, []string{"application/jsonl"}, []string{"text/plain"}, nil), blob()
		if d.percent(5) {
			a.method = http.MethodHead
		}
	case 4: // nothing
		a.method, a.path, a.status = http.MethodDelete, "/v1/files/f-1", pick(d, 200, 204, 204, 304)
		if d.percent(50) {
			a.kind = nil
		}
	case 5: // the caller's fault, which is told as the upstream does
		f := &families[d.IntN(3)]
		a.path, a.request, a.status = f.path, f.request, pick(d, 400, 405, 413, 415, 422)
		a.body = pick(d, `{"error":{"message":`+d.text(40)+`,"type":"invalid_request_error","param":"messages","code":null}}`, d.value(3), "", string([]byte(blob())[:0]), "<html>\xff no </html>")
	}
	if a.method != http.MethodGet && a.method != http.MethodHead && a.method != http.MethodDelete && a.request == "" {
		a.request = chat("m")
	}
	return a
}

// TestSameRequests: what the upstream gets of a body is what the caller sent, on each attempt; a model's other name
// stands in the place of the old one, and everything else stays.
func TestSameRequests(t *testing.T) {
	u := newScripted(t)
	s := serve(t, u.site("models {\nfast vendor/fast-1\n*\n}\n"))
	eachCase(t, 120, func(t testing.TB, id string, d dice) {
		b := d.requestBody()
		sc := script{reply: says(200, `{"text":"fine","choices":[{"message":{"content":"fine"}}]}`)}
		order := atOnce
		if d.percent(60) {
			sc.first, order = d.failFirst(nil, b.repeatable)
		}
		u.cases.Store(id, &sc)
		var body io.Reader = strings.NewReader(b.sent)
		unknown := d.percent(40)
		if unknown {
			body = &dripping{d, b.sent}
		}
		w := d.way(s)
		r := s.request(b.method, b.path, body, caseField, id, "Content-Type", b.kind)
		got := s.do(w.client, r)
		calls, asked := u.of(id)
		if got.status != 200 || got.err != nil || !slices.Contains(order, asked) {
			t.Errorf("case %s: %d (%v), calls %q, want %q: %.300s", id, got.status, got.err, asked, order, got.body)
		}
		for i, c := range calls {
			if at := firstDifference(string(c.body), b.want); at >= 0 {
				t.Errorf("case %s: call %d got %d bytes, want %d; they differ from %d on:\n got …%q\nwant …%q", id, i, len(c.body), len(b.want), at, around(string(c.body), at), around(b.want, at))
			}
			if c.length != int64(len(b.want)) || c.header.Get("Content-Type") != b.kind || c.header.Get("Content-Encoding") != "" || c.method != b.method || c.uri != b.path {
				t.Errorf("case %s: call %d: %s %s, length %d, want %d, %v", id, i, c.method, c.uri, c.length, len(b.want), c.header)
			}
			c.body = nil
		}
	})
}

// dripping is a body of unknown length that comes in random pieces.
type dripping struct {
	d    dice
	left string
}

func (r *dripping) Read(p []byte) (int, error) {
	if r.left == "" {
		return 0, io.EOF
	}
	n := copy(p, r.left[:min(len(r.left), 1+r.d.IntN(pick(r.d, 3, 5000, 60_000)))])
	r.left = r.left[n:]
	return n, nil
}

func (d dice) fill(b []byte) {
	for i := range b {
		b[i] = byte(d.Uint32())
	}
}

type requestBody struct {
	method, path, kind string
	sent, want         string
	repeatable         bool
}

func (d dice) requestBody() requestBody {
	b := requestBody{method: http.MethodPost, path: pick(d, "/v1/chat/completions", "/v1/embeddings", "/v1/audio/transcriptions"), kind: "application/json", repeatable: true}
	if d.percent(25) {
		b.method, b.path, b.repeatable = pick(d, http.MethodPost, http.MethodPut, http.MethodPatch), pick(d, "/v1/files", "/v1/batches", "/v1/images/generations"), false
	}
	if d.percent(40) { // bytes
		b.kind = pick(d, "application/json", "application/octet-stream", "multipart/form-data; boundary=x", "text/plain; charset=latin1")
		raw := make([]byte, pick(d, 1, 100, 4096, 4097, 70_000, 300_000)*(1+d.IntN(3)))
		d.fill(raw)
		b.sent = pick(d, "", `{"model":"fa`, `{"model":"m"`, "--x\r\n", "\xef\xbb\xbf", "\x1f\x8b\x08") + string(raw)
		b.want = b.sent
		return b
	}
	// An object with a model somewhere at its top, and once more below; perhaps with strings that are no UTF-8.
	member := func(name, value string) string {
		return d.blank() + name + d.blank() + ":" + d.blank() + value + d.blank()
	}
	name, value, renamed := pick(d, `"model"`, `"model"`, `"mod\u0065l"`), `"m"`, ""
	if d.percent(60) {
		value = pick(d, `"fast"`, `"f\u0061st"`, `"\u0066\u0061\u0073\u0074"`)
		renamed = `"vendor/fast-1"`
	}
	rest := func() (members []string) {
		for n := d.IntN(4); n > 0; n-- {
			members = append(members, member(pick(d, `"messages"`, `"model "`, `"\"model\""`, `"x"`, `"temperature"`, `""`, d.text(10)), pick(d, d.value(4), `{"model":"fast"}`, `["model","fast",{"model":"fast"}]`, "\"\xff\xfe\xc3\x28\"", `"\\"`, d.text(200))))
		}
		return members
	}
	head, tail := rest(), rest()
	if d.percent(10) {
		head = append(head, member(`"model"`, pick(d, `"fast"`, `null`, `["fast"]`))) // of two the last counts
	}
	if d.percent(15) {
		tail = append(tail, member(`"input"`, `"`+strings.Repeat(pick(d, "long ", `\"`, "ü", `{\"model\":\"fast\"}`), pick(d, 1000, 20_000, 150_000))+`"`))
	}
	lead, trail := d.blank(), d.blank()
	write := func(value string) string {
		parts := slices.Concat(head, []string{"\x00"}, tail)
		parts[len(head)] = d.fixed(name, value)
		return lead + "{" + strings.Join(parts, ",") + "}" + trail
	}
	b.sent = write(value)
	b.want = b.sent
	if renamed != "" {
		b.want = write(renamed)
	}
	return b
}

// fixed is a member without chance, so that it can be written twice.
func (dice) fixed(name, value string) string { return "\n " + name + " : " + value + "\t" }
