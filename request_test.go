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
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

// TestPeek: what is found at the top level, and where.
func TestPeek(t *testing.T) {
	for _, tc := range []struct {
		body       string
		model      string
		stream     bool
		background bool
	}{
		{`{}`, "", false, false},
		{`{"model":"m"}`, "m", false, false},
		{`{"model":"m","stream":true}`, "m", true, false},
		{" \r\n\t{ \"stream\" : true , \"model\" : \"m\" } \n", "m", true, false},
		{`{"messages":[{"model":"no","stream":true}],"model":"m"}`, "m", false, false},
		{`{"a":{"b":[1,{"c":"}]\"{"}]},"model":"m","z":[[[]]]}`, "m", false, false},
		{`{"a":"\\","model":"m"}`, "m", false, false},
		{`{"a":"\\\"model\":\\\"no","model":"m"}`, "m", false, false},
		{`{"a":-1.5e+9,"b":null,"c":true,"model":"m"}`, "m", false, false},
		{`{"model":"a","model":"b"}`, "b", false, false},
		{`{"model":"a","model":null}`, "", false, false},
		{`{"stream":true,"stream":false}`, "", false, false},
		{`{"model":7}`, "", false, false},
		{`{"model":{"model":"no"}}`, "", false, false},
		{`{"model":["no"]}`, "", false, false},
		{`{"stream":"true"}`, "", false, false},
		{`{"stream":1}`, "", false, false},
		{`{"Model":"no","STREAM":true}`, "", false, false},
		{`{"mod\u0065l":"m","\u0073tream":true}`, "m", true, false},
		{`{"model":"a\"b\\c\u00e4\n\ud83d\ude00"}`, "a\"b\\cä\n😀", false, false},
		{`{"model":""}`, "", false, false},
		{`{"model":"m","background":true}`, "m", false, true},
		// What is no JSON object gives nothing, or what was found before it stopped making sense.
		{``, "", false, false},
		{`[{"model":"no"}]`, "", false, false},
		{`"model"`, "", false, false},
		{`model=no`, "", false, false},
		{`{model:"no"}`, "", false, false},
		{`{"model" "no"}`, "", false, false},
		{`{"model":"m"`, "", false, false}, // half a name looks the same
		{`{"model":`, "", false, false},
		{`{"model"`, "", false, false},
		{`{"a":]],"model":"m"}`, "", false, false},
	} {
		got := peek([]byte(tc.body))
		if got.model != tc.model || got.stream != tc.stream || got.background != tc.background {
			t.Errorf("%s: %+v", tc.body, got)
		}
		if got.model != "" {
			var m string
			if err := json.Unmarshal([]byte(tc.body)[got.modelAt[0]:got.modelAt[1]], &m); err != nil || m != tc.model {
				t.Errorf("%s: the model stands at %v", tc.body, got.modelAt)
			}
		}
	}
}

// TestPeekCutShort: a body of which only the beginning is held must not give half a name.
func TestPeekCutShort(t *testing.T) {
	const body = `{"stream":true,"model":"gpt-4o-mini","n":1}`
	for n := range len(body) {
		if got := peek([]byte(body[:n])); got.model != "" && got.model != "gpt-4o-mini" {
			t.Errorf("%s: %q", body[:n], got.model)
		}
	}
}

// FuzzPeek compares with encoding/json, for which the last of two fields of one name counts as well.
func FuzzPeek(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","stream":true}`, `{"a":[{"model":"x"}],"model":"\u00e4\\\"","stream":false,"stream":true}`,
		`{"mod\u0065l":"m"}`, `{"model":1,"model":"m"}`, `{"a":"\\","b":{},"c":[],"stream":null}`, ` { } `, `{"":0}`,
		`{"model":"\ud800"}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := peek(body) // never panics
		var want map[string]any
		if !json.Valid(body) || json.Unmarshal(body, &want) != nil || !utf8.Valid(body) {
			return
		}
		model, _ := want["model"].(string)
		stream, _ := want["stream"].(bool)
		// A lone surrogate is no character: what becomes of it is anybody's guess.
		if got.model != model && !strings.ContainsRune(model, utf8.RuneError) || got.stream != stream {
			t.Errorf("%q: %q %v, want %q %v", body, got.model, got.stream, model, stream)
		}
		if got.modelAt[1] == 0 {
			return
		}
		renamed := append(append(append([]byte(nil), body[:got.modelAt[0]]...), quoteJSON("other")...), body[got.modelAt[1]:]...)
		if again := peek(renamed); !json.Valid(renamed) || again.model != "other" || again.stream != got.stream {
			t.Errorf("%q renamed: %q", body, renamed)
		}
	})
}

func TestReadUpTo(t *testing.T) {
	const text = "0123456789"
	for _, tc := range []struct {
		limit, size int64
		want        string
		err         error
	}{
		{100, 10, text, nil},
		{100, -1, text, nil},
		{10, 10, text, nil},
		{10, -1, text, nil},
		{4, 10, "0123", nil},
		{4, -1, "0123", nil},
		{0, -1, "", nil},
		{100, 11, text, io.ErrUnexpectedEOF},
		{11, 100, text, io.ErrUnexpectedEOF},
	} {
		for name, r := range map[string]io.Reader{
			"at once": strings.NewReader(text), "in bytes": iotest.OneByteReader(strings.NewReader(text)), "with its end": iotest.DataErrReader(strings.NewReader(text)),
		} {
			got, err := readUpTo(r, make([]byte, 0, 3), tc.limit, tc.size)
			if string(got) != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s, limit %d, size %d: %q %v, want %q %v", name, tc.limit, tc.size, got, err, tc.want, tc.err)
			}
		}
	}
	if _, err := readUpTo(iotest.ErrReader(io.ErrClosedPipe), nil, 9, -1); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

func TestWithoutKey(t *testing.T) {
	for _, tc := range []struct{ query, want string }{
		{"", ""},
		{"alt=sse", "alt=sse"},
		{"key=secret", ""},
		{"key", ""},
		{"key=", ""},
		{"alt=sse&key=secret", "alt=sse"},
		{"key=secret&alt=sse", "alt=sse"},
		{"a=1&key=x&b=2&key=y", "a=1&b=2"},
		{"%6bey=secret&a=1", "a=1"},
		{"k%65y=secret", ""},
		{"keys=1&monkey=2&Key=3", "keys=1&monkey=2&Key=3"},
		{"a=key&b=%zz&%zz=1", "a=key&b=%zz&%zz=1"},
		{"a=b+c%20d&&x", "a=b+c%20d&&x"},
	} {
		if got := withoutKey(tc.query); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.query, got, tc.want)
		}
	}
}

func inboundOf(t *testing.T, r *http.Request, limit int64) *inbound {
	t.Helper()
	in, err := read(r, limitsOf(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.done)
	return in
}

func posted(body io.Reader, length int64) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", body)
	r.ContentLength = length
	return r
}

// TestBodyFor: byte for byte what the caller sent, as often as it is asked for; only the model's name may change.
func TestBodyFor(t *testing.T) {
	const body = "{\"x\": 1e400, \"model\" : \"a\\u0062c\" ,\r\n \"stream\":false, \"y\":\"\xff\"}"
	for _, length := range []int64{int64(len(body)), -1} {
		in := inboundOf(t, posted(strings.NewReader(body), length), 1<<20)
		if in.model != "abc" || in.final() {
			t.Fatalf("%+v", in)
		}
		for _, tc := range []struct{ model, want string }{
			{"abc", body},
			{"a", strings.Replace(body, `"a\u0062c"`, `"a"`, 1)},
			{`quo"te`, strings.Replace(body, `"a\u0062c"`, `"quo\"te"`, 1)},
			{"abc", body},
		} {
			r, size := in.bodyFor(tc.model)
			got, err := io.ReadAll(iotest.OneByteReader(r))
			if err != nil || string(got) != tc.want || size != int64(len(tc.want)) {
				t.Errorf("%s: %q, %d, %v", tc.model, got, size, err)
			}
			r.Close()
			r.Close()
			if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, errBodyClosed) {
				t.Errorf("read %d after Close: %v", n, err)
			}
		}
	}
}

// TestBodyTooLargeToHold passes through, once; its model is still known if it stands at the beginning.
func TestBodyTooLargeToHold(t *testing.T) {
	body := `{"model":"m","input":"` + strings.Repeat("x", 100<<10) + `"}`
	for _, length := range []int64{int64(len(body)), -1} {
		in := inboundOf(t, posted(strings.NewReader(body), length), 80<<10)
		if !in.final() || in.model != "m" {
			t.Fatalf("final %v, model %q", in.final(), in.model)
		}
		r, size := in.bodyFor("other")
		got, err := io.ReadAll(r)
		want := strings.Replace(body, `"m"`, `"other"`, 1)
		if err != nil || string(got) != want || length >= 0 && size != int64(len(want)) || length < 0 && size != -1 {
			t.Errorf("%d bytes of %d, told as %d: %v", len(got), len(want), size, err)
		}
		r.Close()
	}
}

// TestNameAcrossTheBound: where the held beginning ends inside the model's name, the name is not known; half of it
// must be neither looked up nor replaced.
func TestNameAcrossTheBound(t *testing.T) {
	const before, after = `{"input":"`, `","model":"gpt-4o-mini"}`
	body := before + strings.Repeat("x", peekLimit-len(before)-len(after)+len(`-mini"}`)) + after + strings.Repeat(" ", 100<<10)
	in := inboundOf(t, posted(strings.NewReader(body), int64(len(body))), 80<<10)
	if in.model != "" {
		t.Errorf("model %q", in.model)
	}
	r, _ := in.bodyFor("other")
	defer r.Close()
	if got, _ := io.ReadAll(r); string(got) != body {
		t.Errorf("… %q", got[peekLimit-20:peekLimit+20])
	}
}

// TestExactlyTheLimit is still held, also without a length.
func TestExactlyTheLimit(t *testing.T) {
	for _, extra := range []int{0, 1} {
		body := strings.Repeat("x", 1000+extra)
		for _, length := range []int64{int64(len(body)), -1} {
			in := inboundOf(t, posted(strings.NewReader(body), length), 1000)
			if in.final() != (extra > 0) {
				t.Errorf("%d bytes, length %d: final %v", len(body), length, in.final())
			}
			r, _ := in.bodyFor("")
			if got, err := io.ReadAll(r); err != nil || string(got) != body {
				t.Errorf("%d bytes of %d, %v", len(got), len(body), err)
			}
			r.Close()
		}
	}
}

// TestPathFor renames the model where the path holds it.
func TestPathFor(t *testing.T) {
	for _, tc := range []struct{ path, model, want string }{
		{"/v1beta/models/gemini-pro:generateContent", "gemini-pro", "/v1beta/models/gemini-pro:generateContent"},
		{"/v1beta/models/gemini-pro:generateContent", "other", "/v1beta/models/other:generateContent"},
		{"/v1beta/models/gemini-pro:streamGenerateContent", "a/b", "/v1beta/models/a%2Fb:streamGenerateContent"},
		{"/v1/chat/completions", "other", "/v1/chat/completions"},
	} {
		in := inboundOf(t, httptest.NewRequest(http.MethodPost, tc.path, nil), 1)
		if got := in.pathFor(tc.model); got != tc.want {
			t.Errorf("%s for %s: %s", tc.path, tc.model, got)
		}
	}
}

// TestBuffersAreReused, but not while anybody holds them.
func TestBuffersAreReused(t *testing.T) {
	for _, tc := range []struct {
		size  int64
		class int
	}{{0, 0}, {1, 0}, {4096, 0}, {4097, 1}, {8192, 1}, {4 << 20, 10}, {4<<20 + 1, 11}} {
		if got := sizeClass(tc.size); got != tc.class {
			t.Errorf("%d bytes: class %d, want %d", tc.size, got, tc.class)
		}
		if b := newBuffer(tc.size); len(b.data) != 0 || int64(cap(b.data)) < tc.size {
			t.Errorf("%d bytes: %d of %d", tc.size, len(b.data), cap(b.data))
		}
	}
	in := inboundOf(t, posted(strings.NewReader(simChat), int64(len(simChat))), 1<<20)
	early, _ := in.bodyFor("m")
	in.body.retain() // as the handler itself holds it; the cleanup gives that back
	in.done()
	other := newBuffer(int64(len(simChat)))
	other.data = append(other.data, bytes.Repeat([]byte("!"), len(simChat))...)
	if got, err := io.ReadAll(early); err != nil || string(got) != simChat {
		t.Errorf("%q %v", got, err)
	}
	early.Close()
	for _, size := range []int{1, 4096, 5000, 8192, 9000, 100_000, 4 << 20, 5 << 20, 9 << 20} {
		b := &buffer{data: make([]byte, size)}
		b.refs.Store(1)
		b.release()
		for class := range buffers {
			if got, ok := buffers[class].Get().(*buffer); ok && (len(got.data) != 0 || cap(got.data) < smallestBuffer<<class) {
				t.Errorf("class %d has a buffer of %d of %d bytes", class, len(got.data), cap(got.data))
			}
		}
	}
}

// TestBrokenBody: a body that ends too early is an error, whatever its length said.
func TestBrokenBody(t *testing.T) {
	broken := iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(simChat)))
	for _, r := range []*http.Request{posted(broken, -1), posted(strings.NewReader("{"), 2), posted(iotest.ErrReader(io.ErrUnexpectedEOF), -1)} {
		if _, err := read(r, limitsOf(1<<20)); err == nil {
			t.Errorf("length %d: no error", r.ContentLength)
		}
	}
}

// TestRoomForBodies: all bodies together are bounded, what is only announced takes nothing, and all room comes back.
func TestRoomForBodies(t *testing.T) {
	limits := &bodyLimits{one: 2 << 20, all: 3 << 20, held: new(atomic.Int64)}
	body := func(size int) *http.Request {
		return posted(strings.NewReader(strings.Repeat("x", size)), int64(size))
	}
	first, err := read(body(2<<20), limits)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(body(2<<20), limits); !errors.Is(err, errNoRoom) {
		t.Errorf("the second got %v, want %v", err, errNoRoom)
	}
	if got := limits.held.Load(); got != 2<<20 {
		t.Errorf("%d bytes held, want those of the first", got)
	}
	chunked, err := read(posted(strings.NewReader(strings.Repeat("x", 100<<10)), -1), limits)
	if err != nil {
		t.Fatal(err)
	}
	large, err := read(body(50<<20), limits) // passes through: only its beginning is held
	if err != nil || !large.final() {
		t.Fatalf("a body over the limit: %v", err)
	}
	if _, err := read(posted(iotest.ErrReader(io.ErrUnexpectedEOF), 1<<20), limits); err == nil {
		t.Error("a broken upload is no error")
	}
	for _, in := range []*inbound{first, chunked, large} {
		in.done()
	}
	if got := limits.held.Load(); got != 0 {
		t.Errorf("%d bytes still held", got)
	}
}
