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
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// classifyTransport says what it means that no answer came, or that one broke off. A caller who left is no failure.
func classifyTransport(err error) Verdict {
	if errors.Is(err, context.Canceled) {
		return Verdict{}
	}
	var own *limitError
	if errors.As(err, &own) {
		return Verdict{Class: Timeout, Scope: ScopeKey, Rule: "own limit", Reason: own.Error()}
	}
	text := strings.ToLower(withoutURL(err.Error()))
	// Whose fault it is comes first: an outbound proxy and this machine are nobody's upstream.
	for _, find := range []func(error, string) (transportRow, bool){ownSide, byType, byText} {
		if row, ok := find(err, text); ok {
			return Verdict{Class: row.class, Scope: row.scope, Rule: "transport: " + row.reason, Reason: row.reason}
		}
	}
	return Verdict{Class: ServerError, Scope: ScopeKey, Rule: "transport", Reason: "the connection failed"}
}

// withoutURL drops what net/http puts before an error, `Post "https://…": `, which holds no evidence.
func withoutURL(text string) string {
	if verb, rest, found := strings.Cut(text, ` "`); found && !strings.Contains(verb, " ") {
		if _, after, found := strings.Cut(rest, `": `); found {
			return after
		}
	}
	return text
}

// transportRow says what an error of the transport means that has one of these texts in it.
type transportRow struct {
	meaning
	texts []string
}

func firstOf(rows []transportRow, text string) (transportRow, bool) {
	for _, row := range rows {
		for _, t := range row.texts {
			if strings.Contains(text, t) {
				return row, true
			}
		}
	}
	return transportRow{}, false
}

var ownSideRows = []transportRow{
	{meaning{ServerError, ScopeNone, "our own outbound proxy failed"}, []string{
		"proxyconnect", "proxyerror", "proxy error", "connect to proxy", "socks connect", "proxy connection", "tunnel connection failed", "proxy authentication required", "via proxy",
	}},
	{meaning{Unknown, ScopeNone, "this machine is out of sockets"}, []string{
		"too many open files", "cannot assign requested address", "no buffer space", "emfile", "enfile", "eaddrnotavail", "address already in use",
		"cannot allocate memory", "enobufs",
	}},
	{meaning{Unknown, ScopeNone, "the address or the request is malformed"}, []string{
		"unsupported protocol scheme", "missing protocol scheme", "no host in request url", "invalid url", "invalid header field", "invalid method",
		"invalid character", "first path segment in url", "no scheme supplied", "unsupported scheme", "invalid port",
		"contentlength=", "the request's path",
	}},
}

func ownSide(err error, text string) (transportRow, bool) {
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.ENOBUFS):
		return ownSideRows[1], true
	}
	return firstOf(ownSideRows, text)
}

func byType(err error, text string) (transportRow, bool) {
	unavailable := func(reason string) (transportRow, bool) {
		return transportRow{meaning: meaning{ProviderUnavailable, ScopeProvider, reason}}, true
	}
	// Caddy's dial error hides what it wraps, so it comes before all that asks what is inside.
	if _, ok := errors.AsType[reverseproxy.DialError](err); ok {
		return unavailable("no connection")
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return unavailable("the name cannot be resolved")
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return unavailable("no connection")
	}
	if isTLS(err) {
		return unavailable("TLS failed")
	}
	if row, ok := firstOf(textRows[:peerRows], text); ok {
		return row, true
	}
	if timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return transportRow{meaning: meaning{Timeout, ScopeKey, "no answer in time"}}, true
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return transportRow{meaning: meaning{ServerError, ScopeKey, "the connection broke"}}, true
	}
	return transportRow{}, false
}

func isTLS(err error) bool {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	_, ok := errors.AsType[x509.CertificateInvalidError](err)
	return ok
}

// peerRows is how many of the textRows outrank the error's type: a TLS handshake that timed out is a timeout by type.
const peerRows = 3

// textRows judge errors by their text, also those of clients in other languages, which relays hand on.
var textRows = []transportRow{
	{meaning{RateLimit, ScopeProvider, "the peer calls for calm"}, []string{"enhance_your_calm"}},
	// The graceful end of a connection: what was not served may be sent again on another one.
	{meaning{ServerError, ScopeNone, "the connection was retired"}, []string{"errcode=no_error", "refused_stream", "graceful shutdown", "graceful_shutdown"}},
	{meaning{ProviderUnavailable, ScopeProvider, "TLS failed"}, []string{
		"tls handshake", "tls:", "x509:", "certificate", "ssl:", "ssl_", "ssl routines", "sslerror", "ssl handshake", "ssl connection", "handshake failure", "http response to https client", "err_tls", "tlsv1", "secure tls connection",
	}},
	{meaning{ProviderUnavailable, ScopeProvider, "the name cannot be resolved"}, []string{
		"no such host", "server misbehaving", "name or service not known", "name resolution", "getaddrinfo", "enotfound", "eai_again",
		"nodename nor servname", "resolve host", "failed to resolve", "nameresolutionerror", "dns error", "dns lookup", "dns server",
	}},
	{meaning{ProviderUnavailable, ScopeProvider, "no connection"}, []string{
		"connection refused", "econnrefused", "no route to host", "ehostunreach", "network is unreachable", "enetunreach", "host is down", "ehostdown",
		"dial tcp", "dial udp", "connect: ", "connecttimeout", "connect timeout", "connect etimedout", "und_err_connect_timeout", "errno 110]",
		"failed to connect", "couldn't connect", "could not connect", "cannot connect to host", "connection attempts failed", "newconnectionerror", "failed to establish a new connection",
		"actively refused",
	}},
	{meaning{Timeout, ScopeKey, "no answer in time"}, []string{
		"timeout", "timed out", "deadline exceeded", "etimedout", "time out", "err_timed_out",
	}},
	{meaning{ServerError, ScopeKey, "the connection broke"}, []string{
		"eof", "connection reset", "econnreset", "broken pipe", "epipe", "goaway", "stream error", "socket hang up", "server closed", "closed network connection",
		"connection closed", "connection broken", "disconnect", "connection aborted", "malformed http", "other side closed", "terminated", "incomplete",
		"closed connection", "protocol error", "protocol_error", "internal_error", "reset by peer",
	}},
}

func byText(_ error, text string) (transportRow, bool) { return firstOf(textRows, text) }
