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
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

// adapt turns a Caddyfile into JSON, and fails on warnings.
func adapt(t *testing.T, input string) ([]byte, error) {
	t.Helper()
	result, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(input), nil)
	for _, w := range warnings {
		if !strings.Contains(w.Message, "not formatted") {
			t.Errorf("warning: %s", w)
		}
	}
	return result, err
}

// TestCaddyfileAdapt adapts the fixtures in Caddy's own format: a Caddyfile, a line of dashes, and the JSON that it
// becomes or a part of the error.
func TestCaddyfileAdapt(t *testing.T) {
	files, err := filepath.Glob("testdata/caddyfile/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, ok := strings.Cut(string(data), "\n----------\n")
			if want = strings.TrimSpace(want); !ok || want == "" {
				t.Fatal("no line of ten dashes, or nothing after it")
			}
			got, err := adapt(t, input+"\n")
			if !strings.HasPrefix(want, "{") {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error:\n%v\nwant:\n%s", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, got, "", "\t"); err != nil {
				t.Fatal(err)
			}
			if pretty.String() != want {
				t.Errorf("got:\n%s\nwant:\n%s", &pretty, want)
			}
		})
	}
}

// TestCaddyfileErrors pins each message and the line it points to. The line of interest comes from the case; the
// rest of the directive is around it.
func TestCaddyfileErrors(t *testing.T) {
	const classes = "it may be rate_limit, timeout, auth_error, billing_error, provider_unavailable, server_error, model_unavailable, " +
		"bad_request, unknown, quota_exhausted, overloaded, empty_response, context_overflow or content_policy"

	around := map[string]string{ // % stands where the case's text goes
		"directive": ":80\nllm_failover https://a.example {\n%\nkeys {\nk1 sk-secret-1\n}\n}",
		"provider":  ":80\nllm_failover {\nprovider a https://a.example {\n%\nkeys {\nk1 sk-secret-1\n}\n}\n}",
		"pool":      ":80\nllm_failover {\n%\nprovider a https://a.example {\nkeys {\nk1 sk-secret-1\n}\n}\n}",
		"url":       ":80\nllm_failover % {\nkeys {\nk1 sk-secret-1\n}\n}",
		"keys":      ":80\nllm_failover https://a.example {\nkeys {\n%\n}\n}",
		"file":      "%",
	}
	for _, block := range []string{"retry", "circuit", "halt", "timeouts", "limits", "models"} {
		around[block] = strings.ReplaceAll(around["directive"], "%", block+" {\n%\n}")
	}
	around["key"] = strings.ReplaceAll(around["keys"], "%", "k1 sk-secret-1 {\n%\n}")

	check := func(in, text, want string) {
		t.Helper()
		input := strings.ReplaceAll(around[in], "%", text)
		_, err := adapt(t, input+"\n")
		if err == nil {
			t.Errorf("no error for\n%s\nwant: %s", input, want)
			return
		}
		got := err.Error()
		matches := strings.HasSuffix // the line number stands last, so that 4 is not taken for 44
		if !strings.Contains(want, ", at ") {
			matches = strings.Contains
		}
		if !matches(got, want) {
			t.Errorf("%s: %q\n got: %s\nwant: %s", in, text, got, want)
		}
		if strings.Contains(got, "sk-secret") {
			t.Errorf("%s: %q\nthe error shows a secret: %s", in, text, got)
		}
	}

	// numbers of values: an error says what to write
	for _, tc := range []struct{ in, text, usage string }{
		{"directive", "pool", "pool <name>"},
		{"directive", "pool a b", "pool <name>"},
		{"directive", "select", "select <policy> [<placeholder>]"},
		{"directive", "classify", "classify <class> [status <n...>] [code <code...>] [text <words>]"},
		{"directive", "retry 3 {\n}", "retry { ... }"},
		{"directive", "account", "account <name>"},
		{"directive", "auth", "auth <scheme> [<field> <value with {key}>]"},
		{"directive", "auth header Authorization Bearer sk-secret-1", "auth <scheme> [<field> <value with {key}>]"},
		{"directive", "dialects", "dialects <dialect...>"},
		{"directive", "vendor a b", "vendor <name>"},
		{"directive", "header_up", "header_up [+|-]<field> [<value>]"},
		{"directive", "header_up X-A Bearer sk-secret-1", "header_up [+|-]<field> [<value>]"},
		{"directive", "transport", "transport <module> { ... }"},
		{"pool", "provider b", "provider <name> <base_url> { ... }"},
		{"retry", "on", "on <class...>"},
		{"retry", "same_key", "same_key <wait...>"},
		{"retry", "same_key_on", "same_key_on <class...>"},
		{"retry", "backoff", "backoff <base> [<cap>]"},
		{"retry", "backoff 1s 2s 3s", "backoff <base> [<cap>]"},
		{"retry", "jitter", "jitter <percent>"},
		{"retry", "max_retries", "max_retries <n>"},
		{"retry", "budget", "budget <percent> [<per_second>]"},
		{"retry", "max_wait", "max_wait <duration>"},
		{"circuit", "threshold", "threshold <n>"},
		{"circuit", "half_open", "half_open <mode>"},
		{"halt", "overload", "overload <duration> [<cap>]"},
		{"limits", "body", "body <size>"},
		{"key", "weight", "weight <n>"},
		{"key", "models", "models <pattern...>"},
	} {
		block := cmp.Or(map[string]string{"directive": "llm_failover", "pool": "llm_failover", "key": `key "k1"`}[tc.in], tc.in)
		word, _, _ := strings.Cut(tc.usage, " ")
		before, _, _ := strings.Cut(around[tc.in], "%")
		check(tc.in, tc.text, fmt.Sprintf("%s: wrong number of values for %s; write: %s, at Caddyfile:%d", block, word, tc.usage, 1+strings.Count(before, "\n")))
	}

	for _, tc := range []struct{ in, text, want string }{
		// words
		{"directive", "nonsense", `llm_failover: unknown word "nonsense"; it may be pool, select, classify, retry, circuit, halt, timeouts, stream, limits, keys, account, auth, models, dialects, vendor, headroom, header_up or transport, at Caddyfile:3`},
		{"pool", "nonsense", `llm_failover: unknown word "nonsense"; it may be pool, select, classify, retry, circuit, halt, timeouts, stream, limits or provider, at Caddyfile:3`},
		{"provider", "select first", `provider "a": unknown word "select"; it may be keys, account, auth, models, dialects, vendor, headroom, header_up, transport or classify, at Caddyfile:4`},
		{"key", "colour red", `key "k1": unknown word "colour"; it may be account, models, weight or max_in_flight, at Caddyfile:5`},
		{"retry", "nonsense 3", `retry: unknown word "nonsense"; it may be on, same_key, same_key_on, backoff, jitter, max_retries, max_wait, window, min_attempt or budget, at Caddyfile:4`},
		{"circuit", "nonsense 3", `circuit: unknown word "nonsense"; it may be threshold, cooldown, on, half_open or ramp, at Caddyfile:4`},
		{"halt", "overlord 5s", `halt: unknown word "overlord"; it may be base, max, rate_limit, overload, model, recheck or max_cooldown, at Caddyfile:4`},
		{"timeouts", "nonsense 3s", `timeouts: unknown word "nonsense"; it may be headers, first_token, idle, deadline or deadline_header, at Caddyfile:4`},
		{"limits", "nonsense 3", `limits: unknown word "nonsense"; it may be body, held or max_in_flight, at Caddyfile:4`},

		// values
		{"url", "https://a.example https://b.example", "too many arguments; write: llm_failover [<matcher>] [<base_url>] { ... }, at Caddyfile:2"},
		{"retry", "same_key 1s off", `retry: same_key: "off" is not a duration such as 500ms, 30s or 5m, at Caddyfile:4`},
		{"retry", "budget 0%", `retry: budget: "0%" is not a percentage above 0% and up to 100%, at Caddyfile:4`},
		{"retry", "budget 120%", `retry: budget: "120%" is not a percentage above 0% and up to 100%, at Caddyfile:4`},
		{"retry", "budget 20% many", `retry: budget: "many" is not a number above 0, at Caddyfile:4`},
		{"key", "max_in_flight 0", `key "k1": max_in_flight: "0" is not a whole number of 1 or more, at Caddyfile:5`},
		{"limits", "held 3parsecs", `limits: held: "3parsecs" is not a size such as 512KiB or 32MiB, at Caddyfile:4`},
		{"limits", "body 2MiB\nheld 1MiB", "limits: held 1048576 is below body 2097152, at Caddyfile:5"},
		{"limits", "max_in_flight 3 queue 5", "limits: max_in_flight: write: max_in_flight <n> [queue <n> <wait>], at Caddyfile:4"},
		{"limits", "max_in_flight 3 line 5 1s", "limits: max_in_flight: write: max_in_flight <n> [queue <n> <wait>], at Caddyfile:4"},
		{"limits", "max_in_flight 3 queue none 1s", `limits: max_in_flight: "none" is not a whole number of 1 or more, at Caddyfile:4`},
		{"limits", "max_in_flight 3 queue 5 soon", `limits: max_in_flight: "soon" is not a duration such as 500ms, 30s or 5m, at Caddyfile:4`},
		{"circuit", "ramp slowly", `circuit: ramp: "slowly" is not a duration such as 500ms, 30s or 5m, at Caddyfile:4`},
		{"timeouts", "deadline_header X:Y", `timeouts: deadline_header: "X:Y" is not the name of a header field, at Caddyfile:4`},
		{"provider", "headroom maybe", `provider "a": headroom: "maybe" is neither on nor off, at Caddyfile:4`},
		{"timeouts", "idle 1s 2s", "timeouts: idle: write: idle [content] <duration>, at Caddyfile:4"},
		{"timeouts", "idle 1s\nidle 2s", "timeouts: idle: already specified, at Caddyfile:5"},
		{"timeouts", "idle content soon", `timeouts: idle: "soon" is not a duration such as 500ms, 30s or 5m, at Caddyfile:4`},
		{"directive", "stream sometimes 3s", "llm_failover: stream: write: stream keepalive <interval>, at Caddyfile:3"},
		{"directive", "stream keepalive soon", `llm_failover: stream: "soon" is not a duration such as 500ms, 30s or 5m, at Caddyfile:3`},
		{"models", "a b c", `models: too many names for "a"; write: <asked> [<sent>], at Caddyfile:4`},

		// the same word twice, blocks where there are none
		{"directive", "pool a\npool b", "llm_failover: pool already specified, at Caddyfile:4"},
		{"directive", "select first\nselect random", "llm_failover: select already specified, at Caddyfile:4"},
		{"directive", "retry {\n}\nretry {\n}", "llm_failover: retry already specified, at Caddyfile:5"},
		{"directive", "keys {\nk1 sk-secret-1\n}", "llm_failover: keys already specified, at Caddyfile:6"},
		{"directive", "transport http\ntransport http", "llm_failover: transport already specified, at Caddyfile:4"},
		{"provider", "auth bearer\nauth bearer", `provider "a": auth already specified, at Caddyfile:5`},
		{"retry", "max_wait 1s\nmax_wait 1s", "retry: max_wait already specified, at Caddyfile:5"},
		{"key", "weight 1\nweight 2", `key "k1": weight already specified, at Caddyfile:6`},
		{"retry", "max_wait 1s {\nx\n}", "retry: max_wait takes no block, at Caddyfile:5"},

		// durations, numbers, percentages, sizes
		{"retry", "same_key 1s 1parsec", `retry: same_key: "1parsec" is not a duration such as 500ms, 30s or 5m, at Caddyfile:4`},
		{"retry", "same_key 1s 0s", "retry: same_key: 0s must be above zero, at Caddyfile:4"},
		{"retry", "backoff -1s", "retry: backoff: -1s must be above zero, at Caddyfile:4"},
		{"retry", "backoff 1s 500ms", "retry: the cap of backoff, 500ms, is below its base 1s, at Caddyfile:4"},
		{"retry", "max_wait 5", `retry: max_wait: "5" is not a duration such as 500ms, 30s or 5m, at Caddyfile:4`},
		{"retry", "window 0", "retry: window: 0 must be above zero, at Caddyfile:4"},
		{"retry", "min_attempt soon", `retry: min_attempt: "soon" is not a duration such as 500ms, 30s or 5m, at Caddyfile:4`},
		{"retry", "jitter 101%", `retry: jitter: "101%" is not a percentage from 0% to 100%, at Caddyfile:4`},
		{"retry", "jitter -1", `retry: jitter: "-1" is not a percentage from 0% to 100%, at Caddyfile:4`},
		{"retry", "jitter NaN", `retry: jitter: "NaN" is not a percentage from 0% to 100%, at Caddyfile:4`},
		{"retry", "max_retries -1", `retry: max_retries: "-1" is not a whole number of 0 or more, at Caddyfile:4`},
		{"circuit", "threshold many", `circuit: threshold: "many" is not a whole number of 1 or more, at Caddyfile:4`},
		{"circuit", "threshold 0", `circuit: threshold: "0" is not a whole number of 1 or more, at Caddyfile:4`},
		{"circuit", "cooldown -3s", "circuit: cooldown: -3s must be above zero, at Caddyfile:4"},
		{"halt", "base soon", `halt: base: "soon" is not a duration such as 500ms, 30s or 5m, at Caddyfile:4`},
		{"halt", "base 2m\nmax 1m", "halt: max 1m0s is below base 2m0s, at Caddyfile:5"},
		{"halt", "overload 5s 4s", "halt: the cap of overload, 4s, is below its first rest 5s, at Caddyfile:4"},
		{"timeouts", "headers -1s", "timeouts: headers: -1s must be above zero, at Caddyfile:4"},
		{"limits", "body 3parsecs", `limits: body: "3parsecs" is not a size such as 512KiB or 32MiB, at Caddyfile:4`},
		{"limits", "body 0", `limits: body: "0" is not a size such as 512KiB or 32MiB, at Caddyfile:4`},
		{"limits", "body -5MiB", `limits: body: "-5MiB" is not a size such as 512KiB or 32MiB, at Caddyfile:4`},
		{"limits", "body 16EiB", `limits: body: "16EiB" is not a size such as 512KiB or 32MiB, at Caddyfile:4`},
		{"key", "weight -1", `key "k1": weight: "-1" is not a whole number of 1 or more, at Caddyfile:5`},
		{"timeouts", "deadline 500ms", "timeouts: deadline 500ms is shorter than min_attempt 1s of retry, so no attempt could ever start, at Caddyfile:2"},

		// what a word may be
		{"retry", "on rate_limit nonsense", `retry: on: unknown "nonsense"; ` + classes + ", at Caddyfile:4"},
		{"retry", "same_key_on nonsense", `retry: same_key_on: unknown "nonsense"; ` + classes + ", at Caddyfile:4"},
		{"circuit", "on nonsense", `circuit: on: unknown "nonsense"; ` + classes + ", at Caddyfile:4"},
		{"circuit", "on timeout bad_request", "circuit: on may not list bad_request: what is wrong with a request is no fault of the key, at Caddyfile:4"},
		{"circuit", "on context_overflow", "circuit: on may not list context_overflow: what is wrong with a request is no fault of the key, at Caddyfile:4"},
		{"circuit", "half_open sometimes", `circuit: half_open: unknown "sometimes"; it may be probe or reset, at Caddyfile:4`},
		{"directive", "select nonsense", `select: unknown "nonsense"; it may be first, round_robin, random, weighted_random, least_in_flight or sticky, at Caddyfile:3`},
		{"directive", "select sticky", "select: sticky needs a placeholder that tells callers apart, such as {http.request.header.X-Session}, at Caddyfile:3"},
		{"directive", "select sticky session", "select: sticky needs a placeholder that tells callers apart, such as {http.request.header.X-Session}, at Caddyfile:3"},
		{"directive", "select first {header.X}", "select: only sticky takes a placeholder, at Caddyfile:3"},
		{"directive", "auth nonsense", `auth: unknown "nonsense"; it may be bearer, x-api-key, x-goog-api-key, api-key or header, at Caddyfile:3`},
		{"directive", "auth bearer X-Key {key}", "auth: bearer takes no field and no value; write auth header <field> <value with {key}>, at Caddyfile:3"},
		{"directive", "auth header X-Key", "auth: header needs a field and a value: auth header <field> <value with {key}>, at Caddyfile:3"},
		{"directive", `auth header "X Key" {key}`, `auth: "X Key" is not the name of a header field, at Caddyfile:3`},
		{"directive", "auth header X-Key sk-secret-1", "auth: the value for header field X-Key does not contain {key}, where the credential goes, at Caddyfile:3"},
		{"provider", "dialects chat nonsense", `dialects: unknown "nonsense"; it may be chat, responses, messages or gemini, at Caddyfile:4`},
		{"provider", "vendor nonsense", `vendor: unknown "nonsense"; it may be ` + listWords(Vendors) + ", at Caddyfile:4"},
		{"directive", "header_up ?X-A b", `llm_failover: header_up: "?X-A" is not [+|-] and the name of a header field, at Caddyfile:3`},
		{"directive", "header_up -X-A sk-secret-1", "llm_failover: header_up: -X-A deletes the field and takes no value, at Caddyfile:3"},
		{"directive", "transport nonsense", "getting module named 'http.reverse_proxy.transport.nonsense': module not registered: http.reverse_proxy.transport.nonsense, at Caddyfile:3"},
		{"directive", "transport http {\nnonsense\n}", "unrecognized subdirective nonsense, at Caddyfile:4"},
		{"models", "m a\nm b", `models: "m" is listed twice, at Caddyfile:5`},
		{"models", "m-* n-*", `models: "m-*" cannot be sent as "n-*": * is for asked names only, at Caddyfile:4`},
		{"models", `""`, "models: a model has no asked name, at Caddyfile:4"},
		{"directive", "pool a/b", `pool name "a/b" may not hold spaces, slashes or braces, at Caddyfile:3`},
		{"key", `models ""`, `key "k1": models: a pattern is empty, at Caddyfile:5`},

		// the operator's own rules
		{"directive", "classify nonsense status 418", `classify: unknown class "nonsense"; ` + strings.Replace(classes, " or ", ", ", 1) + ", at Caddyfile:3"},
		{"provider", "classify nonsense status 418", `classify: unknown class "nonsense"; ` + strings.Replace(classes, " or ", ", ", 1) + ", at Caddyfile:4"},
		{"directive", "classify timeout", "classify timeout: give it a status, a code or a text, at Caddyfile:3"},
		{"directive", "classify timeout status", "llm_failover: classify: status has no value, at Caddyfile:3"},
		{"directive", "classify timeout code text slow", `llm_failover: classify: unexpected "text"; a condition is status, code or text with a value, at Caddyfile:3`},
		{"directive", "classify timeout 418", `llm_failover: classify: unexpected "418"; a condition is status, code or text with a value, at Caddyfile:3`},
		{"directive", "classify timeout status x", `llm_failover: classify: "x" is not an HTTP status, at Caddyfile:3`},
		{"directive", "classify timeout status 600", "classify timeout: status 600 is not between 100 and 599, at Caddyfile:3"},
		{"directive", "classify timeout text too slow", `llm_failover: classify: unexpected "slow": quote words that belong together, and write text before each alternative, at Caddyfile:3`},
		{"directive", `classify timeout code ""`, "classify timeout: an empty code or text fits nothing, at Caddyfile:3"},

		// base URLs; what may hold a secret is not shown
		{"url", "not-a-url", `base_url "not-a-url" must be http:// or https://, a host, and perhaps a path, at Caddyfile:2`},
		{"url", "ftp://127.0.0.1", `base_url "ftp://127.0.0.1" must be http:// or https://, a host, and perhaps a path, at Caddyfile:2`},
		{"url", "https://", `base_url "https://" must be http:// or https://, a host, and perhaps a path, at Caddyfile:2`},
		{"url", "https://:443/v1", `base_url "https://:443/v1" must be http:// or https://, a host, and perhaps a path, at Caddyfile:2`},
		{"url", "https://a.example/%zz?key=sk-secret-1", `base_url "https://a.example/%zz" must be http:// or https://, a host, and perhaps a path, at Caddyfile:2`},
		{"url", "https://me:sk-secret-1@a.example", `base_url "https://…@a.example" must not hold credentials; they belong in keys, at Caddyfile:2`},
		{"url", "https://a.example?key=sk-secret-1", `base_url "https://a.example" must not have a query or a fragment, at Caddyfile:2`},
		{"url", "https://a.example/v1#", `base_url "https://a.example/v1" must not have a query or a fragment, at Caddyfile:2`},
		{"pool", "provider b b.example {\n}", `base_url "b.example" must be http:// or https://, a host, and perhaps a path, at Caddyfile:3`},

		// keys; a secret is never shown
		{"keys", "k1", `key "k1" has no secret; write: <name> <secret>, at Caddyfile:4`},
		{"keys", `k1 ""`, `key "k1" has no secret, at Caddyfile:4`},
		{"keys", "sk-secret-1-whose-name-was-forgotten", "a key has no secret; write: <name> <secret>, at Caddyfile:4"},
		{"keys", "k1 Bearer sk-secret-1", `key "k1": a key line is <name> <secret>; quote a secret with spaces, at Caddyfile:4`},
		{"keys", "k1 {file.key}", `key "k1": a secret is resolved when the config is loaded and cannot come from a request; it may hold {env.NAME} or {file./path/to/file}, at Caddyfile:4`},
		{"keys", "k1 sk-secret-1\nk2 sk-secret-2\nk1 sk-secret-3", `two keys are named "k1", at Caddyfile:6`},
		{"keys", "k/1 sk-secret-1", `key name "k/1" may not hold spaces, slashes or braces, at Caddyfile:4`},
		{"keys", "", `provider "default": no keys: it needs at least one, keys { <name> <secret> }, at Caddyfile:2`},
		{"keys", "k1 sk-secret-1 {\naccount k2\n}\nk2 sk-secret-2", `provider "default": account "k2" bears the name of a key that does not belong to it; rename one of the two, at Caddyfile:2`},

		// the two forms
		{"pool", "models {\nm\n}", "llm_failover: models cannot stand here: it belongs in a provider block, or after a base_url: llm_failover <base_url> { ... }, at Caddyfile:3"},
		{"pool", "auth bearer", "llm_failover: auth cannot stand here: it belongs in a provider block, or after a base_url: llm_failover <base_url> { ... }, at Caddyfile:3"},
		{"directive", "provider b https://b.example {\n}", "llm_failover: provider cannot stand here: a directive with a base_url is a provider itself; move the base_url into a provider block of its own, at Caddyfile:3"},
		{"pool", "provider b https://b.example", `provider "b": no keys: it needs at least one, keys { <name> <secret> }, at Caddyfile:3`},
		{"pool", "provider a https://b.example {\nkeys {\nk1 sk-secret-1\n}\n}", `llm_failover: provider: two providers are named "a", at Caddyfile:8`},
		{"file", ":80\nllm_failover", "no provider: a pool needs at least one, with a base_url and a key, at Caddyfile:2"},
		{"file", ":80\nllm_failover /v1/* {\nretry {\n}\n}", "no provider: a pool needs at least one, with a base_url and a key, at Caddyfile:2"},
	} {
		check(tc.in, tc.text, tc.want)
	}
}

// TestExamplesAdapt adapts every Caddyfile that users are shown.
func TestExamplesAdapt(t *testing.T) {
	files, err := filepath.Glob("examples/*/Caddyfile")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := adapt(t, string(data)); err != nil {
				t.Error(err)
			}
			if !bytes.Equal(caddyfile.Format(data), data) {
				t.Error("not formatted; run caddy fmt --overwrite")
			}
		})
	}
}

// FuzzCaddyfile feeds the parser arbitrary directives. What it takes must be a config that JSON users could have
// written: it decodes strictly, and it is valid there too.
func FuzzCaddyfile(f *testing.F) {
	files, _ := filepath.Glob("testdata/caddyfile/*.caddyfiletest")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if _, directive, ok := strings.Cut(string(data), "llm_failover "); ok {
			directive, _, _ = strings.Cut(directive, "\n\t}\n")
			f.Add(directive + "\n}")
		}
	}
	f.Fuzz(func(t *testing.T, directive string) {
		h := new(Handler)
		tokens, err := caddyfile.Tokenize([]byte("llm_failover "+directive), "Caddyfile")
		if err != nil || h.UnmarshalCaddyfile(caddyfile.NewDispenser(tokens)) != nil {
			return
		}
		config, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		decoded := new(Handler)
		if err := caddy.StrictUnmarshalJSON(config, decoded); err != nil {
			t.Fatalf("%v\n%s", err, config)
		}
		if again, err := json.Marshal(decoded); err != nil || !bytes.Equal(again, config) {
			t.Errorf("%v: not the same after decoding:\n%s\n%s", err, config, again)
		}
		if err := decoded.validate(); err != nil {
			t.Errorf("%v\n%s", err, config)
		}
	})
}
