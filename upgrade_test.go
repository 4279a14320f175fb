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

//lint:file-ignore SA1019 net/http's own client cannot send an extended CONNECT; that of x/net can.

package llmfailover

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // RFC 6455 has it
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

const realtime = "/v1/realtime?model=m"

// accepts answers with an upgrade to what is asked for, and the first of the subprotocols. Then it has the connection.
// What is said first goes with the answer.
func accepts(first string, then func(c net.Conn, r *bufio.Reader)) reply {
	return reply{do: func(w http.ResponseWriter, r *http.Request, _ *call) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err) // HTTP/2
		}
		defer conn.Close()
		sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // RFC 6455 has it
		answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\nX-Own: upstream's\r\nSec-WebSocket-Accept: " +
			base64.StdEncoding.EncodeToString(sum[:]) + "\r\n"
		if p, _, _ := strings.Cut(r.Header.Get("Sec-Websocket-Protocol"), ","); p != "" {
			answer += "Sec-WebSocket-Protocol: " + p + "\r\n"
		}
		_, _ = io.WriteString(conn, answer+"\r\n"+first)
		if then != nil {
			then(conn, buffered.Reader)
		}
	}}
}

// echoes answers each byte with itself until there are no more.
func echoes(c net.Conn, r *bufio.Reader) { _, _ = io.Copy(c, r) }

// talks reads nothing, and sends without end.
func talks(c net.Conn, _ *bufio.Reader) {
	for err := error(nil); err == nil; {
		_, err = c.Write(make([]byte, 1000))
	}
}

func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// socket is a caller's WebSocket, or the answer in its place.
type socket struct {
	*received
	net.Conn
	r *bufio.Reader
}

// Read implements io.Reader.
func (s *socket) Read(p []byte) (int, error) { return s.r.Read(p) }

const (
	socketKey    = "dGhlIHNhbXBsZSBub25jZQ==" // of RFC 6455
	socketAccept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
)

// webSocket opens a WebSocket, or reads the refusal to its end. What is said first goes with the request.
func (s *server) webSocket(path, first string, headers ...string) *socket {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	for n := 0; err != nil && n < 20 && s.loaded.Load(); n++ { // as in server.do
		conn, err = net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	request := "GET " + path + " HTTP/1.1\r\nHost: " + conn.RemoteAddr().String() + "\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + socketKey + "\r\n"
	for i := 0; i < len(headers); i += 2 {
		request += headers[i] + ": " + headers[i+1] + "\r\n"
	}
	_, _ = io.WriteString(conn, request+"\r\n"+first)
	c := &socket{received: &received{t: s.t}, Conn: conn, r: bufio.NewReader(conn)}
	res, err := http.ReadResponse(c.r, &http.Request{Method: http.MethodGet})
	switch {
	case err != nil:
		c.err = err
	case res.StatusCode == http.StatusSwitchingProtocols:
		c.status, c.header = res.StatusCode, res.Header
	default:
		c.read(res)
		res.Body.Close()
	}
	return c
}

// wantEcho sends something and wants it back.
func (c *socket) wantEcho(what string) {
	c.t.Helper()
	_, _ = io.WriteString(c.Conn, what)
	c.wantNext(what)
}

func (c *socket) wantNext(what string) {
	c.t.Helper()
	got := make([]byte, len(what))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != what {
		c.t.Fatalf("got %q (%v), want %q", got, err, what)
	}
}

// wantEnd waits for the end.
func (c *socket) wantEnd() {
	c.t.Helper()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, c.r); errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Error("the tunnel does not end")
	}
}

func TestWebSocketTunnel(t *testing.T) {
	models := "models {\n* provider/m\n}\n"
	for name, tc := range map[string]struct {
		before, more string
		configure    []func(*httptest.Server)
	}{
		"plain":         {},
		"behind encode": {before: "encode gzip zstd\n"},
		"an upstream that prefers HTTP/2": {
			more:      "transport http {\ntls_insecure_skip_verify\n}\n",
			configure: []func(*httptest.Server){func(s *httptest.Server) { s.EnableHTTP2 = true }},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newUpstream(t, tc.configure...).on("k1", accepts("at once", echoes))
			s := serve(t, tc.before+pair(a, models, tc.more))
			c := s.webSocket("/v1/realtime?a=%7e&model=m&key=callers&API-Key=callers&b&=", "early",
				"Authorization", "Bearer callers",
				"Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits",
				"Sec-WebSocket-Protocol", "realtime, openai-insecure-api-key.callers, openai-organization.callers",
				"Sec-WebSocket-Protocol", "openai-project.callers, openai-beta.realtime-v1")
			c.want(101).wantHeader("Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Accept", socketAccept, "Sec-WebSocket-Protocol", "realtime", "X-Own", "upstream's", "Content-Length", "")
			c.wantNext("at once")
			c.wantNext("early")
			s.wantState("default.keys.k1.in_flight", "1")
			big := make([]byte, 1<<20)
			for i := range big {
				big[i] = byte(rand.Uint32())
			}
			go func() { _, _ = c.Conn.Write(big) }()
			got := make([]byte, len(big))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, big) {
				t.Error("not byte for byte", err)
			}
			c.Close()
			eventually(t, "the upstream is left", func() bool { return s.state("default.providers.default.keys.k1.in_flight") == "0" })
			s.wantState("default.keys.k1.totals.attempts", "1", "default.keys.k1.totals.failures", "0")

			a.wantOrder("k1")
			call := a.asked("k1")[0]
			<-call.ended
			if call.uri != "/v1/realtime?a=%7e&model=provider%2Fm&b&=" || call.method != http.MethodGet || call.proto != "HTTP/1.1" {
				t.Error(call.method, call.uri, call.proto)
			}
			for field, want := range map[string]string{
				"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Key": socketKey, "Sec-Websocket-Version": "13",
				"Sec-Websocket-Protocol": "realtime, openai-beta.realtime-v1", "Sec-Websocket-Extensions": "permessage-deflate; client_max_window_bits",
			} {
				if got := strings.Join(call.header[field], "|"); got != want {
					t.Errorf("%s is %q upstream, want %q", field, got, want)
				}
			}
			if strings.Contains(fmt.Sprint(call.uri, call.header), "callers") {
				t.Error("the caller's credentials travel", call.uri, call.header)
			}
			for _, l := range sink.ours("") {
				t.Error("a success is told", l)
			}
		})
	}
}

func TestWebSocketFailover(t *testing.T) {
	good := accepts("", echoes)
	foreign := func(fields string) reply {
		return reply{do: func(w http.ResponseWriter, _ *http.Request, _ *call) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"+fields+"\r\n")
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		}}
	}
	for _, tc := range []struct {
		name     string
		k1, k2   reply
		order    string
		status   int
		body     string
		class    string // of k1's last error
		attempts string
	}{
		{"429, then 101", limited("Retry-After", "30"), good, "k1 k2", 101, "", "rate_limit", "2"},
		{"500, then 101", fails(500, "oops"), good, "k1 k2", 101, "", "server_error", "2"},
		{"401, then 101", fails(401, "bad key"), good, "k1 k2", 101, "", "auth_error", "2"},
		{"200", says(200, `{"ok":true}`), good, "k1 k2", 101, "", "server_error", "2"},
		{"200 with an error", says(200, `{"error":{"message":"Insufficient quota","code":"invalid_api_key"}}`), good, "k1 k2", 101, "", "auth_error", "2"},
		{"204", says(204, ""), good, "k1 k2", 101, "", "server_error", "2"},
		{"304", says(304, ""), good, "k1 k2", 101, "", "server_error", "2"},
		{"another protocol", foreign("Connection: Upgrade\r\nUpgrade: h2c\r\n"), good, "k1 k2", 101, "", "server_error", "2"},
		{"letters that only fold to it", foreign("Connection: Upgrade\r\nUpgrade: web\u017focket\r\n"), good, "k1 k2", 101, "", "server_error", "2"},
		{"no protocol", foreign(""), good, "k1 k2", 101, "", "server_error", "2"},
		{"reset", just(rst{}), good, "k1 k2", 101, "", "server_error", "2"},
		{"silence", just(hang{}), good, "k1 k2", 101, "", "timeout", "2"},
		{"all limited", limited("Retry-After", "30"), limited("Retry-After", "30"), "k1 k2", 429, "Rate limit reached", "rate_limit", ""},
		{"all rejected", fails(401, "bad key"), fails(401, "bad key"), "k1 k2", 502, "upstream_credentials", "auth_error", ""},
		{"all foreign", foreign(""), foreign(""), "k1 k1 k2 k2", 502, "attempts_exhausted", "server_error", ""},
		{"the caller's fault", fails(400, "no such voice"), good, "k1", 400, "no such voice", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newUpstream(t).on("k1", tc.k1).on("k2", tc.k2)
			s := serve(t, pair(a, short))
			c := s.webSocket(realtime, "").want(tc.status, tc.body)
			if tc.order == "k1 k1 k2 k2" { // whatever the backoff allows
				if tc.order = a.order(); !strings.Contains(tc.order, "k1 k2") {
					t.Error(tc.order)
				}
			}
			a.wantOrder(tc.order)
			s.wantState("default.keys.k1.last_error.class", tc.class)
			if tc.status != 101 {
				c.wantHeader("Content-Type", "application/json", "X-Should-Retry", "false", "Upgrade", "")
				if c.json("error.message") == "" {
					t.Error(c.body)
				}
				s.wantState("default.keys.k1.in_flight", "0", "default.keys.k2.in_flight", "0")
				return
			}
			if lines := sink.ours("served after failover"); len(lines) != 1 || lines[0].Get("attempt").String() != tc.attempts || lines[0].Get("status").String() != "101" {
				t.Error(lines)
			}
			s.wantState("default.keys.k2.in_flight", "1", "default.keys.k1.in_flight", "0")
		})
	}
}

func (c *socket) want(status int, words ...string) *socket {
	c.t.Helper()
	c.received.want(status, words...)
	return c
}

// TestUpgradeNobodyAskedFor pins that a 101 to a plain request is a failure like any other.
func TestUpgradeNobodyAskedFor(t *testing.T) {
	a := newUpstream(t).on("k1", accepts("", nil))
	s := serve(t, pair(a, quick))
	s.post("/v1/chat/completions", chat("m")).want(200, "from-k2")
	a.wantOrder("k1 k2")
	s.wantState("default.keys.k1.last_error.class", "server_error")
}

// TestOtherUpgradesStayHere pins that only a WebSocket is asked for upstream.
func TestOtherUpgradesStayHere(t *testing.T) {
	a := newUpstream(t)
	s := serve(t, pair(a))
	r := s.request(http.MethodGet, "/v1/models", nil, "Connection", "Upgrade", "Upgrade", "h2c", "Sec-WebSocket-Protocol", "x")
	s.do(s.client, r).want(200)
	if h := a.asked("k1")[0].header; h.Get("Upgrade")+h.Get("Connection")+h.Get("Sec-Websocket-Protocol") != "" {
		t.Error(h)
	}
}

func TestWebSocketCandidatesServeTheModel(t *testing.T) {
	a, b := newUpstream(t).on("k1", accepts("", echoes)), newUpstream(t).on("b1", accepts("", echoes))
	s := serve(t, fmt.Sprintf("llm_failover {\nprovider A %s {\n%s\nmodels {\nm\n}\n}\nprovider B %s {\n%s\nmodels {\nrt-* other/rt\n}\n}\n}", a.URL, keysOf("k1"), b.URL, keysOf("b1")))
	s.webSocket("/v1/realtime?model=rt-1&intent=x", "").want(101).wantEcho("hi")
	if got := b.asked("b1"); len(got) != 1 || got[0].uri != "/v1/realtime?model=other%2Frt&intent=x" {
		t.Error(got)
	}
	s.webSocket(realtime, "").want(101).wantEcho("hi")
	a.wantOrder("k1")
	s.webSocket("/v1/realtime?model=none", "").want(404, "model_not_served")
}

func TestWebSocketCallerLeaves(t *testing.T) {
	for name, leave := range map[string]func(*socket){
		"cleanly":         func(c *socket) { c.Close() },
		"with a reset":    func(c *socket) { reset(c.Conn) },
		"with half of it": func(c *socket) { _ = c.Conn.(*net.TCPConn).CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			var talk, quiet = make(chan struct{}), make(chan struct{})
			a := newUpstream(t).
				on("k1", accepts("", func(c net.Conn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r); close(quiet) })).
				on("k2", accepts("", func(c net.Conn, r *bufio.Reader) { talks(c, r); close(talk) }))
			s := serve(t, pair(a, "select round_robin"))
			for i, done := range []chan struct{}{quiet, talk} {
				c := s.webSocket(realtime, "").want(101)
				begun := time.Now()
				leave(c)
				<-done
				if took := time.Since(begun); took > 5*time.Second {
					t.Error(i, took)
				}
			}
			eventually(t, "nothing is in flight", func() bool {
				return s.state("default.providers.default.keys.k1.in_flight")+s.state("default.providers.default.keys.k2.in_flight") == "00"
			})
			s.wantState("default.keys.k1.totals.failures", "0", "default.keys.k2.totals.failures", "0")
		})
	}
	t.Run("before the answer", func(t *testing.T) {
		a := newUpstream(t).on("k1", just(hang{}))
		s := serve(t, pair(a))
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET /v1/realtime HTTP/1.1\r\nHost: "+conn.RemoteAddr().String()+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		eventually(t, "the upstream is asked", func() bool { return a.order() == "k1" })
		conn.Close()
		call := a.asked("k1")[0]
		<-call.ended
		if !call.left {
			t.Error("the upstream was not left")
		}
		eventually(t, "nothing is in flight", func() bool { return s.state("default.providers.default.keys.k1.in_flight") == "0" })
		s.wantState("default.keys.k1.totals.failures", "0")
		a.wantOrder("k1")
	})
}

// TestWebSocketUpstreamEnds pins that a key is charged with a tunnel that broke, and not with one that was closed.
func TestWebSocketUpstreamEnds(t *testing.T) {
	last := strings.Repeat("last words ", 1000)
	for _, tc := range []struct {
		name   string
		end    func(c net.Conn, left <-chan struct{})
		faults string
	}{
		{"cleanly", func(c net.Conn, _ <-chan struct{}) { c.Close() }, "0"},
		{"half of it", func(c net.Conn, left <-chan struct{}) { _ = c.(*net.TCPConn).CloseWrite(); <-left }, "0"},
		{"with a reset", func(c net.Conn, _ <-chan struct{}) { reset(c) }, "1"},
	} {
		for _, chatty := range []bool{false, true} { // whether the caller talks meanwhile
			t.Run(fmt.Sprintf("%s, chatty %v", tc.name, chatty), func(t *testing.T) {
				end := make(chan struct{})
				a := newUpstream(t).on("k1", accepts("", func(c net.Conn, r *bufio.Reader) {
					left := make(chan struct{})
					go func() { _, _ = io.Copy(io.Discard, r); close(left) }()
					<-end
					_, _ = io.WriteString(c, last)
					tc.end(c, left)
				}))
				s := serve(t, pair(a))
				broken := func() float64 { return metric(s.scrape(), "requests_total", "outcome", string(outcomeBroken)) }
				before := broken()
				c := s.webSocket(realtime, "").want(101)
				if chatty {
					go func() {
						for {
							if _, err := io.WriteString(c.Conn, strings.Repeat("x", 100)); err != nil {
								return
							}
						}
					}()
				}
				close(end)
				if tc.faults == "0" {
					c.wantNext(last)
				}
				c.wantEnd()
				eventually(t, "nothing is in flight", func() bool { return s.state("default.providers.default.keys.k1.in_flight") == "0" })
				if chatty && tc.name == "cleanly" {
					return // to close what has unread bytes is to reset it
				}
				a.wantOrder("k1")
				s.wantState("default.keys.k1.totals.failures", tc.faults, "default.keys.k1.circuit.failures", tc.faults)
				eventually(t, "its outcome is counted", func() bool { return fmt.Sprint(broken()-before) == tc.faults })
				lines := sink.ours("tunnel broke")
				if fmt.Sprint(len(lines)) != tc.faults {
					t.Error(lines)
				}
				for _, l := range lines {
					if l.Get("class").String() != "server_error" || l.Get("key").String() != "k1" {
						t.Error(l)
					}
				}
			})
		}
	}
}

// TestTunnelEnds pins which errors of a tunnel's sides are the upstream's.
func TestTunnelEnds(t *testing.T) {
	broke := errors.New("broke")
	for _, tc := range []struct {
		name   string
		events []tunnelEvent
		want   error
	}{
		{"both close", []tunnelEvent{{from: fromUpstream}, {from: fromCaller}}, nil},
		{"the upstream breaks", []tunnelEvent{{from: fromUpstream, err: broke}}, broke},
		{"it does after the caller left", []tunnelEvent{{from: fromCaller}, {from: fromUpstream, err: broke}}, nil},
		{"it has ended, and takes no more", []tunnelEvent{{from: fromUpstream}, {fromCaller, true, syscall.EPIPE}, {from: fromCaller}}, nil},
		{"only who writes hears of it, later", []tunnelEvent{{from: fromUpstream}, {fromCaller, true, broke}, {from: fromCaller}}, broke},
		{"only who writes hears of it", []tunnelEvent{{fromCaller, true, broke}, {from: fromUpstream}, {from: fromCaller}}, broke},
		{"it closed, and who writes hears first", []tunnelEvent{{fromCaller, true, syscall.EPIPE}, {from: fromUpstream}, {from: fromCaller}}, nil},
		{"it broke, and who reads hears it", []tunnelEvent{{fromCaller, true, syscall.EPIPE}, {from: fromUpstream, err: broke}}, broke},
		{"it takes nothing, and says nothing", []tunnelEvent{{fromCaller, true, broke}}, broke},
		{"the caller breaks", []tunnelEvent{{from: fromCaller, err: broke}}, nil},
		{"the caller takes nothing", []tunnelEvent{{fromUpstream, true, broke}}, nil},
	} {
		a, b := net.Pipe()
		tunnel := &tunnel{caller: a, upstream: b, events: make(chan tunnelEvent, 4)}
		for _, e := range tc.events {
			tunnel.events <- e
		}
		if got := tunnel.watch(context.Background()); !errors.Is(got, tc.want) || tc.want == nil && got != nil {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestWebSocketSurvivesReloads(t *testing.T) {
	a, b := newUpstream(t).on("k1", accepts("", echoes)), newUpstream(t).on("k1", accepts("", echoes))
	s := serve(t, pair(a))
	c := s.webSocket(realtime, "").want(101)
	c.wantEcho("before")
	s.reload(pair(b, quick))
	c.wantEcho("after")
	s.wantState("default.keys.k1.in_flight", "1")
	eventually(t, "the new config serves", func() bool { // the old server may take one more connection, to serve or to close it
		s.webSocket(realtime, "").Close()
		return b.order() != ""
	})
	s.reload("respond gone")
	c.wantEcho("still")
	c.Close()
	<-a.asked("k1")[0].ended
}

// TestWebSocketsLeaveNothing pins that the goroutines of tunnels end with them.
func TestWebSocketsLeaveNothing(t *testing.T) {
	stop := make(chan struct{})
	a := newUpstream(t).on("k1", accepts("", echoes)).
		on("k2", accepts("", func(c net.Conn, _ *bufio.Reader) { <-stop; reset(c) }))
	s := serve(t, pair(a, "select round_robin\ncircuit {\nthreshold 1000\n}"))
	s.webSocket(realtime, "").want(101).Close()
	s.state("default")
	s.client.CloseIdleConnections()
	eventually(t, "the first tunnel has ended", func() bool { return !running("(*failover)") && !running("(*tunnel)") })
	before := runtime.NumGoroutine()
	var open []*socket
	for range 40 {
		open = append(open, s.webSocket(realtime, "").want(101))
	}
	close(stop)
	for i, c := range open {
		if i%4 < 2 {
			c.Close()
		} else {
			reset(c.Conn)
		}
	}
	eventually(t, fmt.Sprintf("%d goroutines", before), func() bool { s.client.CloseIdleConnections(); return runtime.NumGoroutine() <= before })
	s.wantState("default.keys.k1.in_flight", "0", "default.keys.k2.in_flight", "0")
}

// running reports whether a function of that name is on some goroutine's stack.
func running(name string) bool {
	var stacks strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2)
	return strings.Contains(stacks.String(), name)
}

// TestWebSocketIsNotIdle pins that no limit of ours ends a silent tunnel.
func TestWebSocketIsNotIdle(t *testing.T) {
	a := newUpstream(t).on("k1", accepts("", echoes), just(hang{})).on("k2", just(hang{}))
	s := serve(t, pair(a, "timeouts {\nheaders 1s\nfirst_token 20ms\nidle 20ms\ndeadline 1500ms\n}\nretry {\nmin_attempt 10ms\nbackoff 5ms\n}"))
	c := s.webSocket(realtime, "").want(101)
	// Another request meets the limits meanwhile: that for the headers at k1, and the deadline at k2.
	s.post("/v1/chat/completions", chat("m")).want(504).wantJSON("error.code", "deadline")
	a.wantOrder("k1 k1 k2")
	c.wantEcho("awake")
}

// TestWebSocketOverHTTP2 runs in a process of its own: whether Go's HTTP/2 takes extended CONNECT (RFC 8441) is decided
// when a process starts.
func TestWebSocketOverHTTP2(t *testing.T) {
	const setting = "http2xconnect=1"
	if !strings.Contains(os.Getenv("GODEBUG"), setting) {
		c := exec.Command(os.Args[0], "-test.run=^TestWebSocketOverHTTP2$", "-test.v", "-test.timeout=1m")
		c.Env = append(os.Environ(), "GODEBUG="+strings.TrimPrefix(os.Getenv("GODEBUG")+","+setting, ","))
		if out, err := c.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestWebSocketOverHTTP2/all_fail")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	end := make(chan struct{})
	a := newUpstream(t).on("k1", limited("Retry-After", "30"), accepts("", echoes)).
		on("k2", accepts("at once", echoes), accepts("", func(net.Conn, *bufio.Reader) { <-end }), accepts("", talks), fails(500, "oops"))
	s := serve(t, fmt.Sprintf("llm_failover %s {\n%s\n%s\n}", a.URL, keysOf("k1", "k2"), quick))
	transport := &http2.Transport{AllowHTTP: true, DialTLSContext: func(_ context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
		return net.Dial(network, address)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	connect := func(t *testing.T) (*http.Response, *io.PipeWriter) {
		t.Helper()
		body, caller := io.Pipe()
		r, err := http.NewRequestWithContext(context.Background(), http.MethodConnect, s.url+realtime, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{":protocol": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Protocol": {"realtime, openai-insecure-api-key.callers"}}
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res, caller
	}
	t.Run("tunnel", func(t *testing.T) {
		res, caller := connect(t)
		if h := res.Header; res.StatusCode != 200 || h.Get("Sec-Websocket-Protocol") != "realtime" || h.Get("Upgrade")+h.Get("Connection")+h.Get("Sec-Websocket-Accept") != "" {
			t.Error(res.StatusCode, h)
		}
		want := []byte("at once and an echo")
		_, _ = io.WriteString(caller, " and an echo")
		got := make([]byte, len(want))
		if _, err := io.ReadFull(res.Body, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q, %v", got, err)
		}
		a.wantOrder("k1 k2")
		call := a.asked("k2")[0]
		if len(call.header.Get("Sec-Websocket-Key")) != 24 || call.method != http.MethodGet || call.uri != realtime || call.header.Get(":protocol") != "" || call.header.Get("Sec-Websocket-Protocol") != "realtime" {
			t.Error(call.method, call.uri, call.header)
		}
		res.Body.Close() // the caller leaves
		<-call.ended
		eventually(t, "nothing is in flight", func() bool { return s.state("default.providers.default.keys.k2.in_flight") == "0" })
	})
	t.Run("the upstream closes", func(t *testing.T) {
		res, _ := connect(t)
		close(end)
		if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		s.wantState("default.keys.k2.totals.failures", "0")
	})
	t.Run("the caller ends and does not read", func(t *testing.T) {
		_, caller := connect(t)
		caller.Close()
		calls := a.asked("k2")
		<-calls[len(calls)-1].ended
		eventually(t, "nothing is in flight", func() bool { return s.state("default.providers.default.keys.k2.in_flight") == "0" })
		s.wantState("default.keys.k2.totals.failures", "0")
	})
	t.Run("all fail", func(t *testing.T) {
		res, _ := connect(t)
		if body, err := io.ReadAll(res.Body); res.StatusCode != 500 || !bytes.Contains(body, []byte("oops")) || err != nil {
			t.Errorf("%d %q, %v", res.StatusCode, body, err)
		}
	})
}

func TestSubprotocolsWithKeys(t *testing.T) {
	for _, tc := range []struct{ offered, want []string }{
		{nil, nil},
		{[]string{"realtime,openai-beta.realtime-v1 "}, []string{"realtime,openai-beta.realtime-v1 "}},
		{[]string{"realtime, openai-insecure-api-key.sk-1, openai-beta.realtime-v1"}, []string{"realtime, openai-beta.realtime-v1"}},
		{[]string{"openai-insecure-api-key.sk-1", "realtime", "OpenAI-Project.p,, OpenAI-Organization.o"}, []string{"realtime"}},
		{[]string{"openai-insecure-api-key.sk-1"}, nil},
		{[]string{"xai-client-secret.t, realtime"}, []string{"realtime"}},
		{[]string{"token, 0123abcd, v1"}, []string{"v1"}},
		{[]string{"v1", "bearer, 0123abcd"}, []string{"v1"}},
		{[]string{"v1", "sk-ant-1"}, []string{"v1"}},
		{[]string{"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9r"}, []string{"v4.channel.k8s.io"}},
	} {
		if got := withoutKeys(tc.offered); !slices.Equal(got, tc.want) {
			t.Errorf("%q becomes %q, want %q", tc.offered, got, tc.want)
		}
	}
}

func TestUpgradeQuery(t *testing.T) {
	for _, tc := range []struct{ query, model, want string }{
		{"", "", ""},
		{"model=m", "m", "model=to/m"},
		{"model=a%2Fb+c", "a/b c", "model=to/m"},
		{"&a=%zz&=&model=m&b=1=2&", "m", "&a=%zz&=&model=to/m&b=1=2&"},
		{"m%6Fdel=m&model=n", "n", "m%6Fdel=to/m&model=to/m"},
		{"Model=m", "", "Model=m"},
		{"model=m&key=k&api-key=k&API_KEY=k&access_token=k", "m", "model=to/m"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/realtime", nil)
		r.URL.RawQuery = tc.query
		r.Header.Set("Connection", "upgrade")
		r.Header.Set("Upgrade", "WebSocket")
		in, err := read(r, limitsOf(1))
		if err != nil || in.upgrade == nil || in.model != tc.model {
			t.Errorf("%q: %v, %q", tc.query, err, in.model)
			continue
		}
		to := "to/m"
		if tc.model == "" {
			to = ""
		}
		if got := in.queryFor(to); strings.ReplaceAll(got, "%2Fm", "/m") != tc.want {
			t.Errorf("%q becomes %q, want %q", tc.query, got, tc.want)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"POST":             func(r *http.Request) { r.Method = http.MethodPost },
		"a body":           func(r *http.Request) { r.ContentLength = 1 },
		"not in the hop":   func(r *http.Request) { r.Header.Del("Connection") },
		"another protocol": func(r *http.Request) { r.Header.Set("Upgrade", "h2c") },
		"no ASCII":         func(r *http.Request) { r.Header.Set("Upgrade", "web\u017focket") },
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/realtime", nil)
		r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
		if change(r); func() bool { _, up := upgradeOf(r); return up != nil }() {
			t.Error(name, "is taken for a wish")
		}
	}
}
