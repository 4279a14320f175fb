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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// inbound is a caller's request, read once and ready to be sent any number of times.
type inbound struct {
	*http.Request
	route   dialect.Route
	path    string   // escaped
	query   string   // raw, without the caller's key
	model   string   // as asked; empty if none was found
	modelAt [2]int   // where it stands in the body; zero if it is not there or cannot be replaced
	form    bool     // the body is a form; else the model in it is JSON
	sealed  bool     // the body is compressed: the model in it cannot be replaced
	upgrade *upgrade // nil: not asked for
	arrived time.Time
	nonce   [2]uint64 // see idempotencyKey

	body *buffer
	rest *remainder // what follows body, where it is too large to be held
	size int64      // of the whole body; -1 if not known

	top     topLevel // what the body says, see search
	glanced bool     // only its ends have been looked at
	once    sync.Once
	unread  bool // it was too long to be looked at whole

	limits *bodyLimits
	share  int64 // of the pool's room for bodies
}

// bodyLimits is what reading a request is held to.
type bodyLimits struct {
	one    int64         // the largest body that is held
	all    int64         // how much all of a pool's together may hold
	held   *atomic.Int64 // how much they do
	strict bool          // something hangs on the model: it must be what upstreams take for it, in whatever body
}

// errNoRoom: the pool holds as many bodies as it may.
var errNoRoom = errors.New("the bodies of the requests under way take all the room that there is for them")

// read reads a request. An error is errNoRoom, the caller's fault, or the caller has left.
func read(r *http.Request, limits *bodyLimits) (*inbound, error) {
	r, up := upgradeOf(r)
	in := &inbound{Request: r, limits: limits, upgrade: up, path: r.URL.EscapedPath(), size: r.ContentLength}
	in.route = dialect.RouteOf(r.Method, in.path)
	in.query = withoutKey(r.URL.RawQuery)
	in.model = in.route.Model
	if up != nil {
		in.readUpgrade()
	}
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		in.size = 0
		return in, nil
	}
	if err := in.hold(); err != nil {
		in.done()
		return nil, err
	}
	if in.route.Model == "" {
		in.look(limits.strict)
	}
	return in, nil
}

// take takes a share of the pool's room for bodies.
func (in *inbound) take(n int64) error {
	in.share += n
	if in.limits.held.Add(n) > in.limits.all {
		return errNoRoom
	}
	return nil
}

// stream reports whether an event stream is asked for. An upgrade is like one in the time that its headers may take.
func (in *inbound) stream() bool { return in.route.Stream || in.upgrade != nil || in.search().stream }

// repeatable reports whether it may be sent again even if the outcome of an earlier attempt is not known.
func (in *inbound) repeatable() bool {
	return in.route.Repeatable && (in.route.Dialect != dialect.Responses || !in.unread && !in.search().background)
}

// maxFirstBuffer is how much room a body gets before any of it has come: what a caller announces costs it nothing.
const maxFirstBuffer = 512 << 10

// hold reads the body up to limit; what is beyond it stays to be read by the one attempt that then is possible.
func (in *inbound) hold() error {
	limit := in.limits.one
	want := limit
	if in.size > limit {
		want = min(limit, peekLimit)
	}
	in.body = newBuffer(min(want, max(in.size, 0), maxFirstBuffer))
	// What the caller only announces takes no room: each piece does when it is about to come.
	for have := int64(0); have < want && have != in.size; {
		next := min(want, have+maxFirstBuffer)
		if in.size >= 0 {
			next = min(next, in.size)
		}
		if err := in.take(next - have); err != nil {
			return err
		}
		var err error
		if in.body.data, err = readUpTo(in.Body, in.body.data, next, in.size); err != nil {
			return err
		}
		if have = int64(len(in.body.data)); have < next {
			break // its end
		}
	}
	switch {
	case in.size > limit:
		in.rest = &remainder{from: in.Body}
	case in.size < 0 && int64(len(in.body.data)) == want: // full: is there more?
		var one [1]byte
		n, err := io.ReadFull(in.Body, one[:])
		if n == 1 {
			in.rest = &remainder{from: io.MultiReader(bytes.NewReader(one[:]), in.Body)}
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

// wantsArray reports whether the stream that the caller asks for is an array: Gemini's, without alt=sse.
func (in *inbound) wantsArray() bool {
	return in.route.Stream && !slices.Contains(strings.Split(in.query, "&"), "alt=sse")
}

// final reports whether the request can be sent once only.
func (in *inbound) final() bool { return in.rest != nil }

// fault is what went wrong while the caller sent the rest of a large body.
func (in *inbound) fault() error {
	if in.rest == nil || !in.rest.ended.Load() {
		return nil
	}
	return in.rest.err
}

// done gives the body back. Attempts that still read it keep it until they are closed. It may be called twice.
func (in *inbound) done() {
	in.body.release()
	in.body = nil
	in.limits.held.Add(-in.share)
	in.share = 0
}

// bodyFor returns what an attempt sends, with the model's name replaced where the provider has another for it, and
// the size of it (-1: not known).
func (in *inbound) bodyFor(model string) (io.ReadCloser, int64) {
	switch {
	case in.size != 0:
	case in.repeatable():
		return http.NoBody, 0
	default: // a request without a body and with an Idempotency-Key is sent again by the transport itself
		return io.NopCloser(strings.NewReader("")), 0
	}
	data, size := in.body.data, in.size
	parts := [3][]byte{data}
	if in.modelAt[1] > 0 && model != in.model {
		name := []byte(model)
		if !in.form {
			name = quoteJSON(model)
		}
		parts = [3][]byte{data[:in.modelAt[0]], name, data[in.modelAt[1]:]}
		if size >= 0 {
			size += int64(len(name) - (in.modelAt[1] - in.modelAt[0]))
		}
	}
	in.body.retain()
	return &bodyReader{parts: parts, rest: in.rest, body: in.body}, size
}

// trailerFor returns the trailer fields that may travel. Those of a body that is not held come with its end: their
// values are set when it is read, as the transport expects it.
func (in *inbound) trailerFor() http.Header {
	if len(in.Trailer) == 0 || in.body == nil {
		return nil
	}
	trailer := make(http.Header, len(in.Trailer))
	copyValues := func() {
		for name, values := range in.Trailer {
			if travels(name) {
				trailer[name] = values
			}
		}
	}
	copyValues()
	if in.rest != nil {
		in.rest.atEnd = copyValues
	}
	return trailer
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

// remainder is what follows the held beginning of a body that is too large to be held: the caller's connection. It can
// be sent once.
type remainder struct {
	from  io.Reader
	begun atomic.Bool // it has been read from
	ended atomic.Bool // to its end, or to an error
	err   error       // that error, once ended is set
	clock *watchdog   // of the attempt, which answers for the time after the caller's bytes came, not before
	atEnd func()      // if not nil

	mu     sync.Mutex // held by who reads: the transport still may when the answer has come
	closed bool
}

// Read implements io.Reader.
func (r *remainder) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, errBodyClosed
	}
	if r.clock != nil {
		r.clock.pause()
		defer r.clock.resume()
	}
	n, err := r.from.Read(p)
	if err == nil {
		return n, nil
	}
	if err != io.EOF {
		r.err = err
	} else if r.atEnd != nil {
		r.atEnd()
	}
	r.ended.Store(true)
	return n, err
}

// lingerTime is how long a caller may still send a body that has been answered.
const lingerTime = time.Second

// finish sees to it that nobody reads from the caller any more when the handler returns. A caller who still sends may
// lose the answer if it is hung up on (RFC 9112 section 9.6), so what it sends is taken for a moment.
func (r *remainder) finish(client *http.ResponseController, linger bool) {
	if r.ended.Load() {
		return
	}
	until := time.Now()
	if linger && client.Flush() == nil {
		until = until.Add(lingerTime)
	}
	if client.SetReadDeadline(until) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	_, _ = io.Copy(io.Discard, r.from)
}

// bodyReader reads a held body for one attempt. The transport may close it while it reads, so both take the lock:
// after Close nothing reads the buffer any more.
type bodyReader struct {
	mu    sync.Mutex
	parts [3][]byte
	rest  *remainder
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

func (r *bodyReader) readHeld(p []byte) (n int, rest *remainder, err error) {
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
	switch {
	case n > 0 || len(p) == 0:
	case r.rest == nil:
		err = io.EOF
	default:
		r.rest.begun.Store(true) // under the lock: once it is closed, this cannot change any more
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
