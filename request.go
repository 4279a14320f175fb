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
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// inbound is a caller's request, read once and ready to be sent any number of times.
type inbound struct {
	*http.Request
	route   dialect.Route
	path    string // escaped
	query   string // raw, without the caller's key
	model   string // as asked; empty if none was found
	modelAt [2]int // where its JSON text stands in the body; zero if it is not there
	stream  bool
	upgrade *upgrade // nil: not asked for
	arrived time.Time

	body *buffer
	rest io.Reader // what follows body, where it is too large to be held; it can be sent once
	size int64     // of the whole body; -1 if not known

	// repeatable: it may be sent again even if the outcome of an earlier attempt is not known.
	repeatable bool
}

// peekLimit is how much of a body that is not held is searched for the model.
const peekLimit = 64 << 10

// read reads a request. An error is the caller's fault, or the caller has left.
func read(r *http.Request, limit int64) (*inbound, error) {
	r, up := upgradeOf(r)
	in := &inbound{Request: r, upgrade: up, path: r.URL.EscapedPath(), size: r.ContentLength}
	in.route = dialect.RouteOf(r.Method, in.path)
	in.query = withoutKey(r.URL.RawQuery)
	in.model, in.stream = in.route.Model, in.route.Stream
	in.repeatable = in.route.Repeatable
	if up != nil {
		in.readUpgrade()
	}
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		in.size = 0
		return in, nil
	}
	if err := in.hold(limit); err != nil {
		return nil, err
	}
	if in.route.Model == "" && isJSON(r.Header) {
		top := peek(in.body.data)
		in.model, in.modelAt = top.model, top.modelAt
		in.stream = in.stream || top.stream
		in.repeatable = in.repeatable && !top.background
	}
	return in, nil
}

func isJSON(h http.Header) bool {
	if h.Get("Content-Encoding") != "" {
		return false
	}
	ct := h.Get("Content-Type")
	return ct == "" || strings.Contains(ct, "json")
}

// hold reads the body up to limit; what is beyond it stays to be read by the one attempt that then is possible.
func (in *inbound) hold(limit int64) error {
	want := limit
	if in.size > limit {
		want = min(limit, peekLimit)
	}
	in.body = newBuffer(min(want, max(in.size, 0)))
	var err error
	in.body.data, err = readUpTo(in.Body, in.body.data, want, in.size)
	if err != nil {
		return err
	}
	switch {
	case in.size > limit:
		in.rest = in.Body
	case in.size < 0 && int64(len(in.body.data)) == want: // full: is there more?
		var one [1]byte
		n, err := io.ReadFull(in.Body, one[:])
		if n == 1 {
			in.rest = io.MultiReader(bytes.NewReader(one[:]), in.Body)
		} else if !errors.Is(err, io.EOF) {
			return err
		}
	}
	if in.rest == nil {
		in.size = int64(len(in.body.data))
	}
	return nil
}

// readUpTo appends to buf what r gives, up to limit bytes or its end. Size is the expected size, -1 if not known.
func readUpTo(r io.Reader, buf []byte, limit, size int64) ([]byte, error) {
	for int64(len(buf)) < limit && int64(len(buf)) != size {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):min(int64(cap(buf)), limit)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return buf, err
		}
	}
	if size >= 0 && int64(len(buf)) < min(limit, size) {
		return buf, io.ErrUnexpectedEOF
	}
	return buf, nil
}

// final reports whether the request cannot be sent again at all.
func (in *inbound) final() bool { return in.rest != nil }

// done gives the body back. Attempts that still read it keep it until they are closed.
func (in *inbound) done() {
	if in.body != nil {
		in.body.release()
	}
}

// bodyFor returns what an attempt sends, with the model's name replaced where the provider has another for it, and
// the size of it (-1: not known).
func (in *inbound) bodyFor(model string) (io.ReadCloser, int64) {
	switch {
	case in.size != 0:
	case in.repeatable:
		return http.NoBody, 0
	default: // a request without a body and with an Idempotency-Key is sent again by the transport itself
		return io.NopCloser(strings.NewReader("")), 0
	}
	data, size := in.body.data, in.size
	parts := [3][]byte{data}
	if in.modelAt[1] > 0 && model != in.model {
		name := quoteJSON(model)
		parts = [3][]byte{data[:in.modelAt[0]], name, data[in.modelAt[1]:]}
		if size >= 0 {
			size += int64(len(name) - (in.modelAt[1] - in.modelAt[0]))
		}
	}
	in.body.retain()
	return &bodyReader{parts: parts, rest: in.rest, body: in.body}, size
}

// pathFor is the escaped path for an attempt, with the model's name replaced where the path holds it.
func (in *inbound) pathFor(model string) string {
	if at := in.route.ModelAt; at[1] > 0 && model != in.model {
		return in.path[:at[0]] + url.PathEscape(model) + in.path[at[1]:]
	}
	return in.path
}

func quoteJSON(s string) []byte {
	return gjson.AppendJSONString(nil, s)
}

// withoutKey takes the caller's `key` parameter (Gemini's way to carry one) out of a raw query and leaves every other
// byte as it is.
func withoutKey(query string) string {
	if !strings.Contains(query, "=") && !strings.EqualFold(query, "key") {
		return query
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if decoded, err := url.QueryUnescape(name); err == nil && decoded == "key" {
			continue
		}
		kept = append(kept, part)
	}
	return strings.Join(kept, "&")
}

// topLevel is what is looked for at the top level of a JSON body.
type topLevel struct {
	model      string
	modelAt    [2]int
	stream     bool
	background bool
}

// peek finds them in one pass over the top level, which skips strings by their quotes: a search for one absent field
// with a general parser costs more than all the rest of a large request. Of a field that stands twice the last counts,
// as most parsers have it. A body that is not a JSON object gives nothing.
func peek(b []byte) topLevel {
	var top topLevel
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return top
	}
	i++
	for {
		i = skipSpace(b, i)
		if i >= len(b) || b[i] != '"' {
			return top
		}
		keyEnd := skipString(b, i)
		key := b[i:keyEnd]
		if i = skipSpace(b, keyEnd); i >= len(b) || b[i] != ':' {
			return top
		}
		start := skipSpace(b, i+1)
		end := skipValue(b, start)
		if start >= end {
			return top
		}
		if i = skipSpace(b, end); i >= len(b) { // the value may go on in what is not held
			return top
		}
		top.note(key, b[start:end], start)
		if b[i] != ',' {
			return top
		}
		i++
	}
}

func (t *topLevel) note(key, value []byte, at int) {
	if bytes.IndexByte(key, '\\') >= 0 {
		key = []byte(strconv.Quote(gjson.ParseBytes(key).String()))
	}
	switch string(key) {
	case `"model"`:
		t.model, t.modelAt = "", [2]int{}
		if value[0] == '"' {
			t.model, t.modelAt = gjson.ParseBytes(value).String(), [2]int{at, at + len(value)}
		}
	case `"stream"`:
		t.stream = string(value) == "true"
	case `"background"`:
		t.background = string(value) == "true"
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i, or the end of b.
func skipString(b []byte, i int) int {
	for i++; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		end := i + n
		escapes := 0
		for b[end-1-escapes] == '\\' {
			escapes++
		}
		i = end + 1
		if escapes%2 == 0 {
			return i
		}
	}
	return len(b)
}

// skipValue returns the index after the value that begins at i. What is no value ends at i or wherever it stops making
// sense: the body goes upstream as it is in any case.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				return i + 1 + min(depth, 0) // a bracket too many belongs to what is outside
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// bodyReader reads a held body for one attempt. The transport may close it while it reads, so both take the lock:
// after Close nothing reads the buffer any more.
type bodyReader struct {
	mu    sync.Mutex
	parts [3][]byte
	rest  io.Reader
	body  *buffer // nil once closed
}

var errBodyClosed = errors.New("request body is closed")

// Read implements io.Reader.
func (r *bodyReader) Read(p []byte) (int, error) {
	n, rest, err := r.readHeld(p)
	if rest == nil || n > 0 || err != nil {
		return n, err
	}
	return rest.Read(p) // the caller's connection: not under the lock, since it may block
}

func (r *bodyReader) readHeld(p []byte) (n int, rest io.Reader, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body == nil {
		return 0, nil, errBodyClosed
	}
	for i := range r.parts {
		if len(r.parts[i]) > 0 && n < len(p) {
			k := copy(p[n:], r.parts[i])
			r.parts[i] = r.parts[i][k:]
			n += k
		}
	}
	if n == 0 && r.rest == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, r.rest, err
}

// Close implements io.Closer.
func (r *bodyReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body != nil {
		r.body.release()
		r.body, r.parts = nil, [3][]byte{}
	}
	return nil
}

// left reports whether the caller is gone.
func (in *inbound) left() bool { return in.Context().Err() != nil }
