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
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/net/http/httpguts"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// upgrade is a caller's wish to turn the request into a WebSocket. Until an upstream agrees it is a request like any
// other; the 101 is its commit; from then on bytes go both ways as they are, and nothing is tried again.
type upgrade struct {
	// body is what the caller sends over HTTP/2 and 3, where the tunnel is the request's body (RFC 8441, RFC 9220).
	body io.ReadCloser
}

const websocket = "websocket"

// upgradeOf returns the wish, if r has one, and r as it would be over HTTP/1.1, which is how it goes upstream: few
// servers take the newer form.
func upgradeOf(r *http.Request) (*http.Request, *upgrade) {
	switch {
	case r.Method == http.MethodGet && r.ProtoMajor == 1 && r.ContentLength == 0 && isWebSocket(r.Header):
		return r, &upgrade{}
	case r.Method == http.MethodConnect &&
		(r.ProtoMajor == 2 && r.Header.Get(":protocol") == websocket || r.ProtoMajor == 3 && r.Proto == websocket):
		up := &upgrade{body: r.Body}
		r = r.WithContext(r.Context())
		r.Method, r.Body, r.ContentLength = http.MethodGet, http.NoBody, 0
		r.Header = maps.Clone(r.Header)
		delete(r.Header, ":protocol")
		var nonce [16]byte
		_, _ = rand.Read(nonce[:]) // it never fails
		r.Header["Sec-Websocket-Key"] = []string{base64.StdEncoding.EncodeToString(nonce[:])}
		return r, up
	}
	return r, nil
}

// isWebSocket reports whether a header asks for the upgrade, or agrees to it. The comparison is one of ASCII: other
// letters that fold to these ones are not the same protocol.
func isWebSocket(h http.Header) bool {
	return httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade") && httpguts.HeaderValuesContainsToken(h["Upgrade"], websocket)
}

// readUpgrade reads what only requests for an upgrade have: they name the model in the query, and browsers, which
// cannot set header fields for them, may put a credential there.
func (in *inbound) readUpgrade() {
	in.query = mapQuery(in.query, func(name, value string) (string, bool) { return value, !keyParameters[strings.ToLower(name)] })
	if in.model != "" {
		return
	}
	mapQuery(in.query, func(name, value string) (string, bool) {
		if name == "model" { // of one that stands twice the last counts, as in a body
			if model, err := url.QueryUnescape(value); err == nil {
				in.model = model
			}
		}
		return value, true
	})
}

// keyParameters are names of query parameters that carry credentials; `key` is dropped from every request.
var keyParameters = map[string]bool{"api-key": true, "api_key": true, "access_token": true, "authorization": true}

// queryFor is the raw query for an attempt, with the model's name replaced where the query holds it.
func (in *inbound) queryFor(model string) string {
	if in.upgrade == nil || in.route.Model != "" || model == in.model {
		return in.query
	}
	return mapQuery(in.query, func(name, value string) (string, bool) {
		if name == "model" {
			value = url.QueryEscape(model)
		}
		return value, true
	})
}

// mapQuery has f replace the raw values of a raw query, or drop them with their names. The names that f gets are
// unescaped. Every other byte stays.
func mapQuery(query string, f func(name, value string) (string, bool)) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		raw, value, assigned := strings.Cut(part, "=")
		name, err := url.QueryUnescape(raw)
		if err != nil {
			name = raw
		}
		value, keep := f(name, value)
		switch {
		case keep && assigned:
			kept = append(kept, raw+"="+value)
		case keep:
			kept = append(kept, raw)
		}
	}
	return strings.Join(kept, "&")
}

// offerUpgrade adds the wish to a request that goes upstream. With these fields net/http sends it over HTTP/1.1, also
// to a server that could speak HTTP/2.
func (in *inbound) offerUpgrade(h http.Header) {
	if in.upgrade == nil {
		return
	}
	h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{websocket}
	for _, name := range [...]string{"Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions"} {
		if values, given := in.Header[name]; given {
			h[name] = values
		}
	}
	if ps := withoutKeys(in.Header["Sec-Websocket-Protocol"]); len(ps) > 0 {
		h["Sec-Websocket-Protocol"] = ps
	}
}

// keyProtocols are pieces of subprotocol names that give a credential away, or who the caller is. Browsers can send
// them nowhere else: openai-insecure-api-key.<key>, openai-organization.<id>, xai-client-secret.<token>,
// base64url.bearer.authorization.k8s.io.<token>.
var keyProtocols = []string{
	"api-key", "api_key", "apikey", "secret", "bearer", "authorization", "token", "openai-organization", "openai-project",
}

// withoutKeys returns the subprotocols that a caller offers without those that carry credentials. Where there is none
// of them it returns the values as they came.
func withoutKeys(values []string) []string {
	var kept []string
	dropped, named := false, false
	for _, value := range values {
		for p := range strings.SplitSeq(value, ",") {
			p = strings.TrimSpace(p)
			lower := strings.ToLower(p)
			secret := named || strings.HasPrefix(lower, "sk-")
			for _, piece := range keyProtocols {
				secret = secret || strings.Contains(lower, piece)
			}
			named = lower == "token" || lower == "bearer" // then the next one is it
			if secret {
				dropped = true
			} else if p != "" {
				kept = append(kept, p)
			}
		}
	}
	switch {
	case !dropped:
		return values
	case len(kept) == 0:
		return nil
	}
	return []string{strings.Join(kept, ", ")}
}

// holdHandshake judges the answer to a wish for an upgrade, or an upgrade that nobody asked for. Only a 101 to what
// was asked for is a success.
func (x *exchange) holdHandshake(in *inbound, p *policy, deadline time.Time) {
	switch status := x.response.StatusCode; {
	case status == http.StatusSwitchingProtocols:
		x.held, x.found = newBuffer(0), FoundNoEnvelope
		if _, writable := x.response.Body.(io.ReadWriteCloser); writable && in.upgrade != nil && isWebSocket(x.response.Header) {
			x.found = FoundUpgrade
		}
	case status > 299 && status != http.StatusNotModified:
		x.holdFailure(p, deadline)
	default:
		x.holdFailure(p, deadline)
		x.found = FoundNoEnvelope
		if in.route.Body(x.held.data) == dialect.BodyFailed {
			x.found, x.failing = FoundError, x.held.data
		}
	}
}

// tunnel is what a request has become after its commit: bytes go both ways until one side ends.
type tunnel struct {
	caller, upstream io.ReadWriteCloser

	events chan tunnelEvent
	ended  [2]bool // by tunnelEvent.from
}

// tunnelEvent is that one side has ended (with an error, or cleanly), or does not take what the other sends.
type tunnelEvent struct {
	from    side
	refused bool // what it sent was not taken
	err     error
}

type side uint8

const (
	fromCaller side = iota
	fromUpstream
)

const (
	// linger is how long a tunnel stays once one side has ended cleanly. What the other still says is carried on, and
	// what it sends is read: to close a connection that has unread bytes resets it, and what went before, such as the
	// frame that says why it is closed, may get lost.
	linger = 250 * time.Millisecond

	tunnelBuffer = 16 << 10 // for each direction
)

// openTunnel commits and serves the tunnel to its end. There is no limit on its silence: who waits for a call may
// wait for long.
func (f *failover) openTunnel(x *exchange) error {
	// From here on a failure is a new one, also of a key that has just proved itself.
	x.visit.charged, x.visit.started = false, sequence.Load()
	caller, err := f.switchProtocols()
	if err != nil {
		f.outcome = outcomeFailed
		x.traced.judged(Verdict{Class: Unknown, Scope: ScopeNone, Reason: "the caller's connection cannot be upgraded"}, x.status())
		f.pool.logger.Error("the caller's connection cannot be upgraded", zap.String("pool", f.pool.name),
			zap.String("provider", f.visit.provider.name), zap.String("key", f.visit.name), zap.Int("attempt", f.trace.attempts), zap.Error(err))
		panic(http.ErrAbortHandler) // the answer has begun
	}
	t := &tunnel{caller: caller, upstream: x.response.Body.(io.ReadWriteCloser), events: make(chan tunnelEvent, 4)}
	if err := t.serve(f.in.Context()); err != nil {
		f.tunnelBroke(x, err)
	}
	return nil
}

// switchProtocols answers the caller, and returns the connection.
func (f *failover) switchProtocols() (io.ReadWriteCloser, error) {
	h, control := f.w.Header(), http.NewResponseController(f.w)
	h.Del("Content-Length")
	if f.in.upgrade.body != nil {
		h.Del("Sec-Websocket-Accept") // the answer to a key of ours
		f.w.WriteHeader(http.StatusOK)
		if err := control.Flush(); err != nil {
			return nil, err
		}
		c := &streamConn{f.in.upgrade.body, f.w, control, control}
		reader, writer := caddyhttp.IdleTimeoutsFromContext(f.in.Context())
		if reader != nil {
			reader.Override(noDeadline, 0) // a body may not pause for long, a tunnel may
		}
		if writer != nil { // it takes no deadline while it writes; what is beneath it does
			c.below = writer.Ctrl
		}
		return c, nil
	}
	h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{websocket}
	f.w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buffered, err := control.Hijack()
	if err != nil {
		return nil, err
	}
	if err := buffered.Flush(); err != nil {
		conn.Close()
		return nil, err
	}
	return &bufferedConn{conn, buffered.Reader}, nil
}

// bufferedConn is a connection of which some bytes have been read already.
type bufferedConn struct {
	net.Conn
	buffered *bufio.Reader
}

// Read implements io.Reader.
func (c *bufferedConn) Read(p []byte) (int, error) { return c.buffered.Read(p) }

// CloseWrite sends the end of what we send. Caddy's access log hides that a connection can.
func (c *bufferedConn) CloseWrite() error { return closeWrite(c.Conn) }

// streamConn is a caller's stream over HTTP/2 or 3 as a connection.
type streamConn struct {
	io.ReadCloser // the request's body
	w             http.ResponseWriter
	control       *http.ResponseController
	below         *http.ResponseController // which may be used while Write runs
}

// Write implements io.Writer. Nothing waits for more to come.
func (c *streamConn) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if err == nil {
		err = c.control.Flush()
	}
	return n, err
}

// closeWrite tells the other end that nothing more comes from us, where that can be told.
func closeWrite(c io.Writer) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

// serve carries bytes both ways to the end, and returns what broke the upstream's side while the caller was there.
// Both connections are closed then, and nothing of it runs any more.
func (t *tunnel) serve(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { t.carry(t.upstream, t.caller, fromCaller) })
	both.Go(func() { t.carry(t.caller, t.upstream, fromUpstream) })
	broke := t.watch(ctx)
	t.upstream.Close()
	if c, ok := t.caller.(*streamConn); ok && !t.ended[fromUpstream] {
		_ = c.below.SetWriteDeadline(time.Now()) // else a caller who does not read holds the one who writes
	}
	t.caller.Close()
	both.Wait()
	return broke
}

// watch returns when the tunnel has ended.
func (t *tunnel) watch(ctx context.Context) (broke error) {
	var over <-chan time.Time
	for !t.ended[fromCaller] || !t.ended[fromUpstream] {
		select {
		case <-ctx.Done(): // the caller has left
			return broke
		case <-over:
			return broke
		case e := <-t.events:
			switch {
			case e.from == fromUpstream && e.refused, e.from == fromCaller && e.err != nil && !e.refused: // the caller has left
				return broke
			case e.refused:
				// EPIPE is the trace of an end; whether that was a clean one the other direction knows. Of any other
				// error only one direction hears: what the other sees of it looks like a clean end.
				if !errors.Is(e.err, syscall.EPIPE) {
					broke = e.err
				}
			case e.err != nil:
				if !t.ended[fromCaller] && broke == nil {
					broke = e.err
				}
				return broke
			case e.from == fromUpstream:
				t.ended[fromUpstream] = true
				_ = closeWrite(t.caller) // where it cannot be told now, the close will tell
			default:
				t.ended[fromCaller] = true
				_ = closeWrite(t.upstream)
			}
			if over == nil {
				over = time.After(linger)
			}
		}
	}
	return broke
}

// carry is one direction. It reads to the end even if nobody takes it.
func (t *tunnel) carry(to io.Writer, from io.Reader, side side) {
	buf := make([]byte, tunnelBuffer)
	taken := true
	for {
		n, err := from.Read(buf)
		if n > 0 && taken {
			if _, err := to.Write(buf[:n]); err != nil {
				taken = false
				t.events <- tunnelEvent{side, true, err}
			}
		}
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			t.events <- tunnelEvent{side, false, err}
			return
		}
	}
}

// tunnelBroke charges the key with a tunnel whose upstream side broke.
func (f *failover) tunnelBroke(x *exchange, err error) {
	now := time.Now()
	f.verdict = classify(Evidence{Err: err, Now: now})
	f.trace.class = f.verdict.Class
	f.outcome = outcomeBroken
	x.traced.judged(f.verdict, x.status())
	x.visit.record(f.verdict, 0, func() bool { return false }, now)
	x.visit.emit(change{event: eventStreamFailed, target: targetKey, reason: f.verdict.Class})
	f.log(zapcore.WarnLevel, "tunnel broke", f.verdict.Class, f.verdict.Reason, zap.Duration("took", now.Sub(x.begun)))
}
