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

package hint

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func header(fields ...string) http.Header {
	h := make(http.Header)
	for i := 0; i < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	return h
}

func TestHeaderHint(t *testing.T) {
	const date = "Wed, 01 Jul 2026 11:00:00 GMT" // an hour behind
	for _, c := range []struct {
		name   string
		fields []string
		want   time.Duration
	}{
		{"seconds", []string{"Retry-After", "2"}, 2 * time.Second},
		{"spaces", []string{"Retry-After", " 2 "}, 2 * time.Second},
		{"a fraction", []string{"Retry-After", "0.5"}, 500 * time.Millisecond},
		{"IMF date", []string{"Retry-After", "Wed, 01 Jul 2026 12:00:20 GMT"}, 20 * time.Second},
		{"RFC 850 date", []string{"Retry-After", "Wednesday, 01-Jul-26 12:00:20 GMT"}, 20 * time.Second},
		{"asctime date", []string{"Retry-After", "Wed Jul  1 12:00:20 2026"}, 20 * time.Second},
		{"RFC 3339 date", []string{"Retry-After", "2026-07-01T12:00:20Z"}, 20 * time.Second},
		{"by the upstream's clock", []string{"Date", date, "Retry-After", "Wed, 01 Jul 2026 11:00:02 GMT"}, 2 * time.Second},
		{"a wrong Date is none", []string{"Date", "today", "Retry-After", "Wed, 01 Jul 2026 12:00:02 GMT"}, 2 * time.Second},
		{"a date a year ahead", []string{"Retry-After", "Thu, 01 Jul 2027 12:00:00 GMT"}, 365 * 24 * time.Hour},
		{"epoch seconds", []string{"Retry-After", "1782907230"}, 30 * time.Second},
		{"a duration", []string{"Retry-After", "1m30s"}, 90 * time.Second},
		{"milliseconds win", []string{"Retry-After", "4", "Retry-After-Ms", "400"}, 400 * time.Millisecond},
		{"milliseconds that are junk do not", []string{"Retry-After", "4", "Retry-After-Ms", "x"}, 4 * time.Second},
		{"Azure's milliseconds", []string{"X-Ms-Retry-After-Ms", "1500"}, 1500 * time.Millisecond},
		{"of two the longer", []string{"Retry-After", "3", "Retry-After", "10"}, 10 * time.Second},
		{"of two in one line, too", []string{"Retry-After", "3, 10"}, 10 * time.Second},
		{"of two one is junk", []string{"Retry-After", "soon", "Retry-After", "3"}, 3 * time.Second},
		{"none", nil, 0},
		{"zero", []string{"Retry-After", "0"}, 0},
		{"negative", []string{"Retry-After", "-5"}, 0},
		{"signed", []string{"Retry-After", "+5"}, 0},
		{"word", []string{"Retry-After", "soon"}, 0},
		{"exponent", []string{"Retry-After", "9e99"}, 0},
		{"hex", []string{"Retry-After", "0x10"}, 0},
		{"no number", []string{"Retry-After", "NaN"}, 0},
		{"infinite", []string{"Retry-After", "inf"}, 0},
		{"two points", []string{"Retry-After", "1.2.3"}, 0},
		{"absurd", []string{"Retry-After", "999999999"}, 0},
		{"overflow", []string{"Retry-After", "99999999999999999999999999"}, 0},
		{"passed", []string{"Retry-After", "Wed, 01 Jul 2026 11:59:50 GMT"}, 0},

		{"the dimension at zero", []string{"X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "6m0s", "X-Ratelimit-Remaining-Tokens", "5", "X-Ratelimit-Reset-Tokens", "9m"}, 6 * time.Minute},
		{"both at zero: the longer", []string{"X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "20ms", "X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "1m26.4s"}, 86400 * time.Millisecond},
		{"none at zero", []string{"X-Ratelimit-Remaining-Tokens", "5", "X-Ratelimit-Reset-Tokens", "9m"}, 0},
		{"nothing said of what remains", []string{"X-Ratelimit-Reset-Tokens", "9m"}, 0},
		{"a lone reset", []string{"X-Ratelimit-Reset", "1"}, time.Second},
		{"epoch seconds", []string{"X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "1782907260"}, time.Minute},
		{"epoch milliseconds", []string{"X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "1782907260000"}, time.Minute},
		{"negative fields", []string{"X-Ratelimit-Remaining-Tokens", "-1", "X-Ratelimit-Reset-Tokens", "0"}, 0},
		{"the draft standard", []string{"Ratelimit-Remaining", "0", "Ratelimit-Reset", "30"}, 30 * time.Second},
		{"Retry-After wins", []string{"Retry-After", "2", "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "60"}, 2 * time.Second},
		{"Anthropic's bucket at zero", []string{
			"Anthropic-Ratelimit-Requests-Remaining", "0", "Anthropic-Ratelimit-Requests-Reset", "2026-07-01T12:00:30Z",
			"Anthropic-Ratelimit-Tokens-Remaining", "9", "Anthropic-Ratelimit-Tokens-Reset", "2026-07-01T12:00:50Z",
		}, 30 * time.Second},
		{"Anthropic's window", []string{
			"Anthropic-Ratelimit-Unified-5h-Status", "rejected", "Anthropic-Ratelimit-Unified-5h-Reset", "1782910800",
			"Anthropic-Ratelimit-Unified-7d-Status", "allowed", "Anthropic-Ratelimit-Unified-7d-Reset", "1783000000",
		}, time.Hour},
	} {
		if got := Wait(header(c.fields...), nil, now); got != c.want {
			t.Errorf("%s: %v: got %v, want %v", c.name, c.fields, got, c.want)
		}
	}
}

func TestBucketsCountForLimitsOnly(t *testing.T) {
	h := header("X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "60")
	if got := Read(h, nil, now, false); got.Wait != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestBodyHint(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       time.Duration
	}{
		{"milliseconds", `{"error":{"message":"Please try again in 174ms. Visit x"}}`, 174 * time.Millisecond},
		{"minutes and seconds", `{"error":{"message":"Please try again in 7m12s."}}`, 432 * time.Second},
		{"with a fraction", `{"error":{"message":"Please try again in 16m32.64s. Need more?"}}`, 992640 * time.Millisecond},
		{"long fraction", `{"error":{"message":"Please retry in 59.906331105s."}}`, 59906331105},
		{"retry after", `{"error":{"message":"Please retry after 86400 seconds."}}`, 24 * time.Hour},
		{"try again after", `{"error":{"message":"please try again after 1 seconds"}}`, time.Second},
		{"wait", `{"error":{"message":"Rate limit of 8 per 86400s exceeded. Please wait 85841 seconds before retrying."}}`, 85841 * time.Second},
		{"words", `{"error":{"message":"Try again in 3 days 4 hours 9 minutes."}}`, (76*60 + 9) * time.Minute},
		{"words with and", `{"error":{"message":"Try again in about 1 hour and 20 minutes"}}`, 80 * time.Minute},
		{"a bare number", `{"error":{"message":"retry after 6"}}`, 6 * time.Second},
		{"a clock", `{"message":"Quota will be replenished in 02:19:05."}`, 2*time.Hour + 19*time.Minute + 5*time.Second},
		{"Chinese", `{"error":{"message":"请在30秒后重试"}}`, 30 * time.Second},
		{"plain text", "slow down, retry in 5 seconds", 5 * time.Second},
		{"an event stream", "data: {\"error\":{\"message\":\"try again in 5s\"}}\n\n", 5 * time.Second},

		{"reset with a zone", `{"error":{"message":"It will reset at 2026-07-01 21:00:00 +0800 CST."}}`, time.Hour},
		{"reset without: Beijing", `{"error":{"message":"Your limit will reset at 2026-07-01 21:00:00"}}`, time.Hour},
		{"Chinese reset", `{"error":{"message":"您的限额将在 2026-07-01 21:00:00 重置。"}}`, time.Hour},
		{"a date and an hour", `{"error":{"message":"You will regain access on 2026-07-01 at 13:00 UTC."}}`, time.Hour},
		{"RFC 3339 in a sentence", `{"error":{"message":"Retry at 2026-07-01T13:00:00Z"}}`, time.Hour},
		{"a reset that has passed", `{"error":{"message":"It will reset at 2026-06-01 00:00:00 UTC"}}`, 0},
		{"a date without a reset", `{"error":{"message":"The key was made on 2026-07-01 at 13:00 UTC"}}`, 0},

		{"Google's delay", `{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"9s"}]}}`, 9 * time.Second},
		{"a day's quota beats it", `{"error":{"details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},{"retryDelay":"9s"}]}}`, 0},
		{"but not one of hours", `{"error":{"details":[{"violations":[{"quotaId":"RequestsPerDay"}]},{"retryDelay":"7200s"}]}}`, 2 * time.Hour},
		{"quotaResetDelay", `{"error":{"details":[{"metadata":{"quotaResetDelay":"1h16m0.66s"}}]}}`, 76*time.Minute + 660*time.Millisecond},
		{"resets_in_seconds needs no clock", `{"error":{"resets_at":1773531611,"resets_in_seconds":438164}}`, 438164 * time.Second},
		{"resets_at", `{"error":{"resets_at":1782910800}}`, time.Hour},
		{"resets_at as a date", `{"error":{"resets_at":"2026-07-01T13:00:00Z"}}`, time.Hour},
		{"estimated_time", `{"error":"loading","estimated_time":577.3751831054688}`, 577375183105},
		{"retry_after", `{"error":{"retry_after":12}}`, 12 * time.Second},
		{"retry_after_ms", `{"error":{"retry_after_ms":1500}}`, 1500 * time.Millisecond},
		{"a reseller's headers", `{"error":{"metadata":{"headers":{"X-RateLimit-Reset":"1782910800000"}}}}`, time.Hour},
		{"JSON in a string", `{"error":{"message":"{\"error\":{\"details\":[{\"retryDelay\":\"26s\"}]}}"}}`, 26 * time.Second},
		{"a member wins over a sentence", `{"error":{"retry_after":12,"message":"try again in 5s"}}`, 12 * time.Second},

		{"no unit and more numbers", `{"error":{"message":"retry after 12 of 13 tries"}}`, 0},
		{"a few seconds", `{"error":{"message":"try again in a few seconds"}}`, 0},
		{"negative", `{"error":{"retry_after":-3}}`, 0},
		{"absurd", `{"error":{"message":"try again in 99999999 days"}}`, 0},
		{"the caller's text", `{"detail":[{"input":"try again in 5s"}]}`, 0},
		{"the model's text", `{"choices":[{"message":{"content":"try again in 5s"}}]}`, 0},
		{"a page", "<html>try again in 5s</html>", 0},
		{"nothing", "", 0},
	} {
		if got := Wait(nil, []byte(c.body), now); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestHeaderAndBody(t *testing.T) {
	short := []byte(`{"error":{"message":"try again in 5s"}}`)
	window := []byte(`{"error":{"resets_in_seconds":7200}}`)
	for _, c := range []struct {
		body    []byte
		limited bool
		want    time.Duration
	}{{short, true, time.Second}, {window, true, 2 * time.Hour}, {window, false, time.Second}} {
		if got := Read(header("Retry-After", "1"), c.body, now, c.limited); got.Wait != c.want {
			t.Errorf("%s, limited %v: got %v, want %v", c.body, c.limited, got.Wait, c.want)
		}
	}
}

func TestHintRaw(t *testing.T) {
	for _, c := range []struct {
		h    http.Header
		body string
		want string
	}{
		{header("Retry-After", "3", "Retry-After", "10"), "", "10"},
		{header("Retry-After", "soon"), "", ""},
		{nil, `{"error":{"message":"Please try again in 7m12s."}}`, "try again in 7m12s"},
		{nil, `{"error":{"retryDelay":"9s"}}`, "9s"},
		{nil, `{"error":{"message":"It resets at 2026-07-01 13:00:00 UTC."}}`, "2026-07-01 13:00:00 UTC"},
	} {
		if got := Read(c.h, []byte(c.body), now, true); got.Raw != c.want {
			t.Errorf("%v %s: raw %q, want %q", c.h, c.body, got.Raw, c.want)
		}
	}
}

func TestCleanRetryAfterHint(t *testing.T) {
	for _, c := range []struct {
		values []string
		date   string
		want   string
	}{
		{nil, "", ""},
		{[]string{"5"}, "", "5"},
		{[]string{"0.5"}, "", "1"},
		{[]string{"0"}, "", "0"},
		{[]string{"5", "20"}, "", "20"},
		{[]string{"soon", "20"}, "", "20"},
		{[]string{"soon"}, "", ""},
		{[]string{"-1"}, "", ""},
		{[]string{"9e99"}, "", ""},
		{[]string{"1m30s"}, "", "90"},
		{[]string{"Wed, 01 Jul 2026 12:00:20 GMT"}, "", "20"},
		{[]string{"Wed, 01 Jul 2026 11:00:02 GMT"}, "Wed, 01 Jul 2026 11:00:00 GMT", "2"},
		{[]string{"Wed, 01 Jul 2026 11:59:00 GMT"}, "", ""},
	} {
		if got := CleanRetryAfter(c.values, now, c.date); got != c.want {
			t.Errorf("%q: got %q, want %q", c.values, got, c.want)
		}
	}
}

func FuzzHint(f *testing.F) {
	f.Add("5", "6m0s", "Wed, 01 Jul 2026 11:00:00 GMT", []byte(`{"error":{"message":"Please try again in 7m12s."}}`))
	f.Add("9e99", "1782907260000", "", []byte(`{"resets_at":"2026-07-01T13:00:00Z","retry_after":1e300}`))
	f.Add("Wed, 01 Jul 2026 12:00:20 GMT", "-1", "x", []byte("retry in 99999999999999999999999999 hours; 分 wait 5"))
	f.Add("1,2,,", "0", "", []byte(`data: {"retryDelay":"-9s"}`))
	f.Fuzz(func(t *testing.T, retryAfter, reset, date string, body []byte) {
		h := header("Retry-After", retryAfter, "Retry-After-Ms", reset, "X-Ratelimit-Reset", reset, "Date", date,
			"Anthropic-Ratelimit-Unified-5h-Status", "rejected", "Anthropic-Ratelimit-Unified-5h-Reset", reset)
		for _, limited := range []bool{false, true} {
			got := Read(h, body, now, limited)
			if got.Wait < 0 || got.Wait > Max || len(got.Raw) > maxRaw {
				t.Fatalf("%+v", got)
			}
			if again := Read(h, body, now, limited); again != got {
				t.Fatalf("not the same twice: %+v, %+v", got, again)
			}
		}
		if clean := CleanRetryAfter([]string{retryAfter}, now, date); strings.ContainsAny(clean, "\r\n") || len(clean) > 40 {
			t.Fatalf("handed on: %q", clean)
		}
	})
}

func BenchmarkHint(b *testing.B) {
	h := header("Date", "Wed, 01 Jul 2026 11:00:00 GMT", "X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "6m0s")
	body := []byte(`{"error":{"message":"Rate limit reached for m on tokens per min: Limit 30000, Used 18928. Please try again in 174ms."}}`)
	b.ReportAllocs()
	for b.Loop() {
		Read(h, body, now, true)
	}
}
