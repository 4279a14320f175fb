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
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

func openAIError(message, kind, code string) []byte {
	return fmt.Appendf(nil, `{"error":{"message":%q,"type":%q,"param":null,"code":%q}}`, message, kind, code)
}

// limitHit stands for the gateway's own limits.
type limitHit struct{}

func (limitHit) Error() string { return "no first token within 2m0s" }
func (limitHit) Timeout() bool { return true }

func TestClassifyTransport(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	read := func(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }
	for name, c := range map[string]struct {
		err   error
		class Class
		scope Scope
	}{
		"caddy's dial error hides what it wraps": {dialError(t), ProviderUnavailable, ScopeProvider},
		"wrapped":                                {fmt.Errorf("attempt: %w", dial(syscall.ECONNREFUSED)), ProviderUnavailable, ScopeProvider},
		"dial timeout is no timeout":             {dial(&net.DNSError{IsTimeout: true, Err: "i/o timeout"}), ProviderUnavailable, ScopeProvider},
		"name":                                   {&net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}, ProviderUnavailable, ScopeProvider},
		"TLS record":                             {tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, ProviderUnavailable, ScopeProvider},
		"certificate":                            {&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}}, ProviderUnavailable, ScopeProvider},
		"unknown authority":                      {x509.UnknownAuthorityError{}, ProviderUnavailable, ScopeProvider},
		"TLS handshake timeout":                  {errors.New("net/http: TLS handshake timeout"), ProviderUnavailable, ScopeProvider},
		"own limit":                              {limitHit{}, Timeout, ScopeKey},
		"own limit, wrapped":                     {fmt.Errorf("read: %w", limitHit{}), Timeout, ScopeKey},
		"deadline":                               {context.DeadlineExceeded, Timeout, ScopeKey},
		"read timeout":                           {read(errTimeout{}), Timeout, ScopeKey},
		"end of file":                            {io.EOF, ServerError, ScopeKey},
		"unexpected end of file":                 {io.ErrUnexpectedEOF, ServerError, ScopeKey},
		"reset":                                  {read(syscall.ECONNRESET), ServerError, ScopeKey},
		"broken pipe":                            {read(syscall.EPIPE), ServerError, ScopeKey},
		"reset inside a url error":               {&url.Error{Op: "Post", URL: "https://timeout.example/tls:", Err: syscall.ECONNRESET}, ServerError, ScopeKey},
		"our own proxy":                          {&net.OpError{Op: "proxyconnect", Net: "tcp", Err: dial(syscall.ECONNREFUSED)}, ServerError, ScopeNone},
		"out of files":                           {dial(syscall.EMFILE), Unknown, ScopeNone},
		"out of ports":                           {dial(syscall.EADDRNOTAVAIL), Unknown, ScopeNone},
		"bad address":                            {errors.New(`unsupported protocol scheme "htp"`), Unknown, ScopeNone},
		"retired connection":                     {errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug=""`), ServerError, ScopeNone},
		"calm":                                   {errors.New("stream error: stream ID 3; ENHANCE_YOUR_CALM; received from peer"), RateLimit, ScopeProvider},
		"something new":                          {errors.New("the wires are crossed"), ServerError, ScopeKey},
	} {
		v := classify(Evidence{Err: c.err})
		if v.Class != c.class || v.Scope != c.scope {
			t.Errorf("%s: %v: got %s of %s, want %s of %s", name, c.err, v.Class, v.Scope, c.class, c.scope)
		}
	}
	if v := classify(Evidence{Err: fmt.Errorf("attempt: %w", context.Canceled)}); v.Failed() {
		t.Errorf("a caller who left was judged %+v", v)
	}
}

// dialError is what Caddy's transport makes of a refused connection.
func dialError(t *testing.T) error {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	var transport reverseproxy.HTTPTransport
	if err := transport.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/", nil)
	_, err := transport.RoundTrip(req)
	if _, ok := errors.AsType[reverseproxy.DialError](err); !ok {
		t.Fatalf("not a dial error: %v", err)
	}
	return err
}

type errTimeout struct{}

func (errTimeout) Error() string { return "i/o timeout" }
func (errTimeout) Timeout() bool { return true }

func TestClassifyFindings(t *testing.T) {
	page := []byte("<!doctype html><html><head><title>Just a moment...</title></head></html>")
	login := []byte(`<html><form action="/login"><input type="password"></form></html>`)
	for _, c := range []struct {
		name  string
		e     Evidence
		class Class
		scope Scope
	}{
		{"answer", Evidence{Status: 200, Body: []byte(`{"error":"insufficient_quota"}`)}, "", ""},
		{"not modified", Evidence{Status: 304}, "", ""},
		{"no content", Evidence{Status: 204}, "", ""},
		{"redirect", Evidence{Status: 302, Body: []byte("insufficient balance")}, ServerError, ScopeKey},
		{"empty", Evidence{Status: 200, Found: FoundEmpty}, EmptyResponse, ScopeNone},
		{"cut", Evidence{Status: 200, Found: FoundCut, Body: []byte(`{"choices":[{"message":{"content":"rate limit`)}, ServerError, ScopeKey},
		{"cut by the idle limit", Evidence{Status: 200, Found: FoundCut, Err: limitHit{}}, Timeout, ScopeKey},
		{"cut by a reset", Evidence{Status: 200, Found: FoundCut, Err: syscall.ECONNRESET}, ServerError, ScopeKey},
		{"filtered", Evidence{Status: 200, Found: FoundFiltered}, ContentPolicy, ScopeRequest},
		{"page", Evidence{Status: 200, Found: FoundNoEnvelope, Body: []byte("<html><title>My app: rate limit exceeded</title></html>")}, ServerError, ScopeKey},
		{"challenge under 200", Evidence{Status: 200, Found: FoundNoEnvelope, Body: page}, ProviderUnavailable, ScopeProvider},
		{"challenge under 403", Evidence{Status: 403, Body: page}, ProviderUnavailable, ScopeProvider},
		{"challenge under 503", Evidence{Status: 503, Body: page}, ProviderUnavailable, ScopeProvider},
		{"captive portal", Evidence{Status: 200, Found: FoundNoEnvelope, Body: login}, ProviderUnavailable, ScopeProvider},
		{"foreign JSON", Evidence{Status: 200, Found: FoundNoEnvelope, Body: []byte(`{"hello":"overloaded"}`)}, ServerError, ScopeKey},
		{"long prose", Evidence{Status: 200, Found: FoundNoEnvelope, Body: []byte(strings.Repeat("The rate limit was exceeded. ", 40))}, ServerError, ScopeKey},
		{"error without a reason", Evidence{Status: 200, Found: FoundError, Body: []byte(`{"error":{"message":"oh"}}`)}, ServerError, ScopeKey},
		{"error with its own status", Evidence{Status: 200, Found: FoundError, Body: []byte(`{"error":{"message":"oh","code":504}}`)}, Timeout, ScopeKey},
		{"a failed answer that broke off", Evidence{Status: 429, Err: io.ErrUnexpectedEOF}, RateLimit, ScopeKey},
	} {
		v := classify(c.e)
		if v.Class != c.class || v.Scope != c.scope {
			t.Errorf("%s: got %s of %s by %q, want %s of %s", c.name, v.Class, v.Scope, v.Rule, c.class, c.scope)
		}
	}
}

func TestClassifyNumbersAndQuotesAreNoWords(t *testing.T) {
	for _, message := range []string{
		"max_tokens 42900 is above the limit of 4096 (request req_429401503, 500 of 503 tokens)",
		"Invalid value in messages[0].content: 'why do I get: rate limit reached, API key not valid, insufficient_quota, model overloaded?'",
		"Invalid value in messages[0].content: why do I get rate limit reached",
		"Could not use “insufficient balance, please recharge” as a stop word",
		"Invalid schema for function 'get_credit_balance': missing 'rate_limit'",
	} {
		for _, code := range []string{"invalid_value", ""} {
			if v := classify(Evidence{Status: 400, Body: openAIError(message, "invalid_request_error", code)}); v.Class.Parent() != BadRequest {
				t.Errorf("%q with code %q: %s by %q", message, code, v.Class, v.Rule)
			}
		}
	}
}

func TestClassifyLimitScope(t *testing.T) {
	for _, c := range []struct {
		message, model string
		scope          Scope
	}{
		{"Rate limit reached for model m-a", "m-a", ScopeModel},
		{"Rate limit reached for model m-a", "", ScopeModel},
		{"Rate limit reached for this API key", "m-a", ScopeKey},
		{"Rate limit reached for requests", "m", ScopeKey},
		{"Too many requests to m-a, slow down", "m-a", ScopeModel},
		{"Too many requests to m-a-large, slow down", "m-a", ScopeKey},
		{"Rate limit exceeded on this model", "", ScopeModel},
		{"Organization rate limit exceeded", "", ScopeAccount},
		{"This request would exceed your account's rate limit", "", ScopeAccount},
		{"Limit 6,000 tokens per minute, requested 9,000", "", ScopeRequest},
		{"Request too large on tokens per minute (TPM): Limit 6000, Requested 9000", "m", ScopeRequest},
		{"Request too large for model m on tokens per minute (TPM): Limit 8000, Requested 2900", "m", ScopeModel},
	} {
		v := classify(Evidence{Status: 429, Model: c.model, Body: openAIError(c.message, "requests", "rate_limit_exceeded")})
		if v.Class != RateLimit || v.Scope != c.scope {
			t.Errorf("%q for %q: got %s of %s, want scope %s", c.message, c.model, v.Class, v.Scope, c.scope)
		}
	}
}

func TestClassifyWait(t *testing.T) {
	header := func(fields ...string) http.Header {
		h := make(http.Header)
		for i := 0; i < len(fields); i += 2 {
			h.Add(fields[i], fields[i+1])
		}
		return h
	}
	for _, c := range []struct {
		name  string
		e     Evidence
		class Class
		scope Scope
		wait  time.Duration
	}{
		{"throttle", Evidence{Status: 429, Header: header("Retry-After", "2")}, RateLimit, ScopeKey, 2 * time.Second},
		{"just a throttle", Evidence{Status: 429, Header: header("Retry-After", "300")}, RateLimit, ScopeKey, 5 * time.Minute},
		{"spent window", Evidence{Status: 429, Header: header("Retry-After", "301")}, QuotaExhausted, ScopeAccount, 301 * time.Second},
		{"spent window of a model", Evidence{Status: 429, Header: header("Retry-After", "3600"), Body: []byte(`{"error":{"message":"Rate limit reached for model m"}}`)}, QuotaExhausted, ScopeModel, time.Hour},
		{"an edge stays an edge", Evidence{Status: 429, Header: header("Retry-After", "3600"), Body: []byte("error code: 1015")}, RateLimit, ScopeProvider, time.Hour},
		{"no money, no hint", Evidence{Status: 402, Header: header("Retry-After", "2")}, BillingError, ScopeAccount, 0},
		{"no credential, no hint", Evidence{Status: 401, Header: header("Retry-After", "2")}, AuthError, ScopeKey, 0},
		{"overload", Evidence{Status: 529, Header: header("Retry-After", "3")}, Overloaded, ScopeProvider, 3 * time.Second},
		{"junk", Evidence{Status: 429, Header: header("Retry-After", "soon")}, RateLimit, ScopeKey, 0},
		{"buckets are read for limits only", Evidence{Status: 503, Header: header("X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "9s")}, ServerError, ScopeKey, 0},
	} {
		c.e.Now = time.Unix(1700000000, 0)
		v := classify(c.e)
		if v.Class != c.class || v.Scope != c.scope || v.Wait != c.wait {
			t.Errorf("%s: got %s of %s for %v, want %s of %s for %v", c.name, v.Class, v.Scope, v.Wait, c.class, c.scope, c.wait)
		}
	}
}

func TestRuleComesFirst(t *testing.T) {
	rules := []Rule{
		{Class: RateLimit, Status: []int{429}, Code: []string{"INSUFFICIENT_QUOTA", "other"}},
		{Class: BadRequest, Code: []string{"weird_code"}},
		{Class: BillingError, Text: []string{"Wallet is empty", "purse"}},
		{Class: ServerError, Status: []int{418, 419}},
		{Class: ModelUnavailable, Code: []string{"429"}},
	}
	for _, c := range []struct {
		name  string
		e     Evidence
		class Class
		scope Scope
		rule  string
	}{
		{"status and code", Evidence{Status: 429, Body: openAIError("You exceeded your current quota", "", "insufficient_quota")}, RateLimit, ScopeKey, "own rule 1"},
		{"all conditions must hold", Evidence{Status: 403, Body: openAIError("x", "", "insufficient_quota")}, BillingError, ScopeAccount, "code insufficient_quota"},
		{"code under any status", Evidence{Status: 500, Body: openAIError("odd", "", "weird_code")}, BadRequest, ScopeRequest, "own rule 2"},
		{"text in any case", Evidence{Status: 429, Body: openAIError("Sorry, your wallet IS empty today", "", "")}, BillingError, ScopeAccount, "own rule 3"},
		{"text of a page", Evidence{Status: 503, Body: []byte("<html>the PURSE</html>")}, BillingError, ScopeAccount, "own rule 3"},
		{"status", Evidence{Status: 418}, ServerError, ScopeKey, "own rule 4"},
		{"a number is a code too", Evidence{Status: 400, Body: []byte(`{"error":{"code":429,"message":"x"}}`)}, ModelUnavailable, ScopeModel, "own rule 5"},
		{"an error in a 200", Evidence{Status: 200, Found: FoundError, Body: openAIError("odd", "", "weird_code")}, BadRequest, ScopeRequest, "own rule 2"},
		{"not an answer", Evidence{Status: 200, Body: openAIError("odd", "", "weird_code")}, "", "", ""},
	} {
		c.e.Rules = rules
		v := classify(c.e)
		if v.Class != c.class || v.Scope != c.scope || v.Rule != c.rule {
			t.Errorf("%s: got %s of %s by %q, want %s of %s by %q", c.name, v.Class, v.Scope, v.Rule, c.class, c.scope, c.rule)
		}
	}
	window := classify(Evidence{Status: 429, Header: http.Header{"Retry-After": {"7200"}}, Rules: rules, Body: openAIError("x", "", "other")})
	if window.Class != RateLimit || window.Wait != 2*time.Hour {
		t.Errorf("an own rule's class was changed: %+v", window)
	}
	hinted := classify(Evidence{Status: 418, Header: http.Header{"Retry-After": {"7"}}, Rules: rules})
	if hinted.Wait != 7*time.Second {
		t.Errorf("an own rule lost the hint: %v", hinted.Wait)
	}
}

func TestRuleValidate(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		want string // part of the error
	}{
		{Rule{Class: RateLimit, Status: []int{429}}, ""},
		{Rule{Class: ContentPolicy, Text: []string{"no"}}, ""},
		{Rule{Class: "throttle", Status: []int{429}}, "rate_limit, timeout"},
		{Rule{Status: []int{429}}, "unknown class"},
		{Rule{Class: RateLimit}, "status, a code or a text"},
		{Rule{Class: RateLimit, Status: []int{42}}, "100 and 599"},
		{Rule{Class: RateLimit, Status: []int{600}}, "100 and 599"},
		{Rule{Class: RateLimit, Text: []string{""}}, "empty"},
	} {
		err := c.rule.validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.rule, err, c.want)
		}
	}
}

// What a verdict says goes to logs, metrics and callers: it must hold nothing of the body.
func TestVerdictHoldsNoForeignText(t *testing.T) {
	const secret = "sk-marker-7f3a"
	shapes := []string{
		`{"error":{"message":"S","type":"S","code":"S","param":"S","status":"S"}}`,
		`{"error":{"message":"Incorrect API key provided: S","type":"invalid_request_error","code":"invalid_api_key"}}`,
		`{"error":{"message":"Rate limit reached for S in organization S on tokens per min: Limit 1, Requested 2","code":"rate_limit_exceeded"}}`,
		`{"error":{"message":"bad response status code S","param":"S","code":"bad_response_status_code"}}`,
		`{"error":"S insufficient balance S"}`, `{"detail":"S"}`, `"S"`, `S`, `error code: S`, `<html>S</html>`,
		`data: {"error":{"message":"S overloaded","code":"S"}}`,
		`{"base_resp":{"status_code":1004,"status_msg":"S (1004)"}}`,
	}
	for _, shape := range shapes {
		for _, vendor := range Vendors {
			for _, status := range []int{200, 302, 400, 401, 403, 404, 429, 500, 503, 529, 777} {
				e := Evidence{
					Status: status, Found: FoundError, Vendor: vendor, Model: secret,
					Header: http.Header{"Retry-After": {secret}, "X-Amzn-Errortype": {secret}},
					Body:   []byte(strings.ReplaceAll(shape, "S", secret)),
					Rules:  []Rule{{Class: RateLimit, Code: []string{secret}, Status: []int{403}}},
				}
				if v := classify(e); strings.Contains(strings.ToLower(fmt.Sprint(v)), "marker") {
					t.Fatalf("%s, status %d: %+v", shape, status, v)
				}
			}
		}
	}
	if v := classify(Evidence{Err: errors.New("dial tcp " + secret + ": connect: connection refused")}); strings.Contains(fmt.Sprint(v), secret) {
		t.Errorf("%+v", v)
	}
}

func TestVendorOfHost(t *testing.T) {
	if !slices.IsSorted(Vendors) || !slices.Contains(Vendors, generic) {
		t.Errorf("Vendors: %v", Vendors)
	}
	for host, want := range map[string]string{
		"api.openai.com": "openai", "API.OpenAI.com:443": "openai", "eu.api.openai.com": "openai", "x.openai.azure.com": "azure",
		"api.anthropic.com": "anthropic", "generativelanguage.googleapis.com": "gemini", "us-central1-aiplatform.googleapis.com": "vertex",
		"bedrock-runtime.us-east-1.amazonaws.com": "bedrock", "open.bigmodel.cn": "zhipu", "api.z.ai": "zhipu",
		"dashscope-intl.aliyuncs.com": "dashscope", "ark.cn-beijing.volces.com": "ark", "api.minimax.io": "minimax", "api.moonshot.cn": "moonshot",
		"127.0.0.1:8080": generic, "[::1]:80": generic, "localhost": generic, "": generic, "notopenai.com": generic, "volces.com": generic,
	} {
		if got := vendorOf(host); got != want {
			t.Errorf("vendorOf(%q) = %q, want %q", host, got, want)
		}
	}
	for name, want := range map[string]string{"zai": "zhipu", "volcengine": "ark", "zhipu": "zhipu", "Kimi-Code": "moonshot", "nobody": generic} {
		if got := vendorNamed(name); got != want {
			t.Errorf("vendorNamed(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestClassifySameCodeOtherVendor(t *testing.T) {
	body := openAIError("You exceeded your current quota, please check your plan and billing details.", "insufficient_quota", "insufficient_quota")
	if v := classify(Evidence{Status: 429, Body: body}); v.Class != BillingError {
		t.Errorf("generic: %s", v.Class)
	}
	if v := classify(Evidence{Status: 429, Body: body, Vendor: "dashscope"}); v.Class != RateLimit {
		t.Errorf("dashscope: %s", v.Class)
	}
	if v := classify(Evidence{Status: 429, Body: body, Vendor: "unheard-of"}); v.Class != BillingError {
		t.Errorf("an unknown vendor: %s", v.Class)
	}
}

// TestRecordedAnswers: what the reader of running answers makes of whole recorded ones.
func TestRecordedAnswers(t *testing.T) {
	for _, c := range []struct {
		name    string
		dialect dialect.Dialect
		stream  bool
		body    string
		want    Finding
		failing string
	}{
		{"answer", dialect.Chat, false, `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`, FoundNothing, ""},
		{"filtered", dialect.Chat, false, `{"choices":[{"message":{"content":null},"finish_reason":"content_filter"}]}`, FoundFiltered, ""},
		{"filtered after some text", dialect.Chat, false, `{"choices":[{"message":{"content":"hi"},"finish_reason":"content_filter"}]}`, FoundNothing, ""},
		{"error", dialect.Chat, false, `{"error":{"message":"x"}}`, FoundError, `{"error":{"message":"x"}}`},
		{"blocked prompt", dialect.Gemini, false, `{"promptFeedback":{"blockReason":"SAFETY"}}`, FoundFiltered, ""},
		{"stream", dialect.Chat, true, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n", FoundNothing, ""},
		{"stream cut", dialect.Chat, true, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n", FoundCut, ""},
		{"comments only", dialect.Chat, true, ": ping\n\n: ping\n\n", FoundEmpty, ""},
		{"error field", dialect.Chat, true, "error: {\"code\":500,\"message\":\"x\"}\n\n", FoundError, `{"code":500,"message":"x"}`},
		{"error after text", dialect.Chat, true, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: {\"error\":{\"message\":\"x\"}}\n\n", FoundError, `{"error":{"message":"x"}}`},
		{"a line of JSON", dialect.Chat, true, "{\"error\":\"x\"}\n", FoundError, `{"error":"x"}`},
		{"prose", dialect.Chat, true, "data: validation failed\n\n", FoundNoEnvelope, "validation failed"},
		{"refusal", dialect.Messages, true, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"refusal\"}}\n\n", FoundFiltered, ""},
	} {
		row := recorded{API: string(c.dialect), Status: http.StatusOK, Stream: c.stream, Body: c.body}
		e := row.evidence(time.Now())
		if e.Found != c.want || c.failing != "" && string(e.Body) != c.failing {
			t.Errorf("%s: got %d with %q, want %d with %q", c.name, e.Found, e.Body, c.want, c.failing)
		}
	}
}

func FuzzClassify(f *testing.F) {
	type kind struct {
		class  string
		status int
	}
	seen := make(map[kind]bool) // one of each kind: all are executed before the fuzzer begins
	for _, row := range readCorpus(f, "testdata/corpus/failures.jsonl") {
		if k := (kind{row.Class, row.Status}); !seen[k] {
			seen[k] = true
			f.Add(row.Status, []byte(row.Body), row.Headers["retry-after"], "m", uint8(0))
		}
	}
	f.Add(400, []byte(`{"error":{"message":"`+strings.Repeat("limit ", 2000)+`"}}`), "9e99", "limit", uint8(1))
	f.Add(200, []byte(strings.Repeat(`{"error":`, 300)), "", "", uint8(1))
	f.Fuzz(func(t *testing.T, status int, body []byte, retryAfter, model string, found uint8) {
		e := Evidence{
			Status: status, Body: body[:min(len(body), 64<<10)], Model: model, Found: Finding(found % 6), Vendor: Vendors[len(body)%len(Vendors)],
			Header: http.Header{"Retry-After": {retryAfter}, "X-Ratelimit-Reset": {retryAfter}}, Now: time.Unix(1700000000, 0),
		}
		v := classify(e)
		if v != classify(e) {
			t.Fatalf("not the same twice: %+v", v)
		}
		if v.Failed() && (!slices.Contains(Classes, v.Class) || v.Scope == "" || v.Rule == "" || v.Reason == "") {
			t.Fatalf("incomplete: %+v", v)
		}
		if !v.Failed() && (v != Verdict{} || status/100 != 2 && status != 304) {
			t.Fatalf("status %d is a success: %+v", status, v)
		}
		if v.Wait < 0 || v.Wait > 400*24*time.Hour {
			t.Fatalf("wait %v", v.Wait)
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	long := strings.Repeat("A long explanation of what went wrong with the call that was made, and of what to do about it. ", 43)
	for name, e := range map[string]Evidence{
		"success":   {Status: 200},
		"code":      {Status: 429, Body: openAIError("You exceeded your current quota", "insufficient_quota", "insufficient_quota")},
		"words":     {Status: 429, Body: openAIError("Rate limit reached for gpt-4.1 in organization ORG_ID on tokens per min (TPM): Limit 30000, Used 18928, Requested 11159. Please try again in 174ms.", "tokens", "rate_limit_exceeded"), Model: "gpt-4.1"},
		"status":    {Status: 500, Body: openAIError("The server had an error while processing your request. Sorry about that!", "server_error", "")},
		"4KB words": {Status: 429, Body: openAIError(long, "tokens", "")},
		"4KB page":  {Status: 502, Body: []byte("<html>" + long + "</html>")},
		"64KB":      {Status: 429, Body: openAIError(strings.Repeat(long, 15), "tokens", "")},
	} {
		e.Header, e.Now = http.Header{"Content-Type": {"application/json"}}, time.Unix(1700000000, 0)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				classify(e)
			}
		})
	}
}
