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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

func TestClassifyCommandReadsFlags(t *testing.T) {
	for _, tc := range []struct {
		name  string
		flags []string
		body  string
		want  judgedRow
		err   string
	}{
		{
			name:  "a throttle with a hint in its header",
			flags: []string{"--status", "429", "--header", "retry-after: 2"},
			body:  `{"error":{"message":"Rate limit reached for requests","code":"rate_limit_exceeded"}}`,
			want:  judgedRow{Class: "rate_limit", Scope: ScopeKey, WaitMS: ms(2000)},
		},
		{
			name:  "one code means no money at one vendor",
			flags: []string{"--status", "429", "--vendor", "openai"},
			body:  `{"error":{"message":"","code":"insufficient_quota"}}`,
			want:  judgedRow{Class: "billing_error", Scope: ScopeAccount},
		},
		{
			name:  "and a throttle at another",
			flags: []string{"--status", "429", "--vendor", "dashscope"},
			body:  `{"error":{"message":"","code":"insufficient_quota"}}`,
			want:  judgedRow{Class: "rate_limit", Scope: ScopeKey},
		},
		{
			name:  "an answer",
			flags: []string{"--status", "200"},
			body:  `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`,
			want:  judgedRow{Class: "ok", Scope: ScopeNone},
		},
		{
			name:  "an error in the first event of a stream",
			flags: []string{"--status", "200", "--stream", "--dialect", "messages"},
			body:  "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
			want:  judgedRow{Class: "overloaded", Scope: ScopeProvider},
		},
		{
			name:  "no answer at all",
			flags: []string{"--transport-error", "dial tcp 192.0.2.1:443: connect: connection refused"},
			want:  judgedRow{Class: "provider_unavailable", Scope: ScopeProvider},
		},
		{name: "no status", err: "--status must be an HTTP status"},
		{name: "an unknown vendor", flags: []string{"--status", "429", "--vendor", "nobody"}, err: `unknown vendor "nobody"`},
		{name: "an unknown dialect", flags: []string{"--status", "429", "--dialect", "latin"}, err: `unknown dialect "latin"`},
		{name: "a header without a value", flags: []string{"--status", "429", "--header", "retry-after"}, err: "is not a field and a value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := classifyCommand()
			if err := cmd.ParseFlags(tc.flags); err != nil {
				t.Fatal(err)
			}
			headers, err := cmd.Flags().GetStringArray("header")
			if err != nil {
				t.Fatal(err)
			}
			row, err := recordedFrom(caddycmd.Flags{FlagSet: cmd.Flags()}, headers, strings.NewReader(tc.body))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want one that says %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := row.judged(classify(row.evidence(time.Now())))
			got.Rule = ""
			if toJSON(t, got) != toJSON(t, tc.want) {
				t.Errorf("judged %s, want %s", toJSON(t, got), toJSON(t, tc.want))
			}
		})
	}
}

func TestClassifyCommandJudgesAFile(t *testing.T) {
	const rows = `{"id":"a","api":"chat","status":402,"body":"{}","class":"billing_error"}

{"id":"b","api":"chat","status":500,"body":"{}","class":"timeout"}
`
	file := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	var table, lines bytes.Buffer
	if err := classifyFile(&table, file, false, time.Now()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "1 of 2 right") {
		t.Errorf("the table does not count: %s", table.String())
	}
	if err := classifyFile(&lines, file, true, time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(lines.String(), "\n"); got != 2 || !strings.Contains(lines.String(), `"id":"b","class":"server_error","scope":"key","wait_ms":null`) {
		t.Errorf("want one line a row, got %s", lines.String())
	}

	if err := os.WriteFile(file, []byte("{}\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := classifyFile(&lines, file, true, time.Now()); err == nil || !strings.Contains(err.Error(), "rows.jsonl:2:") {
		t.Errorf("error %v does not name the line", err)
	}
}

func TestExplainSaysWhatWouldBeDone(t *testing.T) {
	var out bytes.Buffer
	if err := explain(&out, Verdict{Class: RateLimit, Scope: ScopeKey, Wait: 2 * time.Second, Rule: "r", Reason: "why"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"class   rate_limit", "scope   key", "wait    2s",
		"if no other key is free: the same key again after 2s",
		"if a key of another account is free: that key",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %q:\n%s", want, out.String())
		}
	}
}

func ms(n int64) *int64 { return &n }

func toJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
