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
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

const (
	arrayPath   = "/v1beta/models/m:streamGenerateContent"
	arrayBegin  = `[{"candidates":[{"content":{"role":"model","parts":[{"text":""}]},"index":0}],"responseId":"g"}` + "\n"
	arrayDelta  = ",\r\n" + `{"candidates":[{"content":{"role":"model","parts":[{"text":"%s"}]},"index":0}]}` + "\n"
	arrayLast   = ",\r\n" + `{"candidates":[{"content":{"role":"model","parts":[{"text":"]}\"!"}]},"finishReason":"STOP","index":0}]}` + "\n"
	arrayFailed = ",\r\n" + `{"error":{"code":500,"message":"An internal error has occurred","status":"INTERNAL"}}`
)

// array answers with an array that comes in parts.
func array(parts ...any) reply {
	return stream(map[string]string{"Content-Type": "application/json; charset=UTF-8"}, parts...)
}

// TestArrayStreams: Gemini streams an array unless it is asked for events. Elements leave as they come.
func TestArrayStreams(t *testing.T) {
	delta := func(text string) string { return fmt.Sprintf(arrayDelta, text) }
	whole := arrayBegin + delta("Hello") + delta(" world") + arrayLast + "]\n"
	t.Run("as it comes", func(t *testing.T) {
		go1, go2 := make(chan struct{}), make(chan struct{})
		a := newUpstream(t).on("k1", array(arrayBegin, delta("Hello"), until(go1), delta(" world")[:20], delta(" world")[20:], until(go2), arrayLast+"]\n", hang{}))
		s := serve(t, pair(a, short))
		res, err := s.client.Do(s.request(http.MethodPost, arrayPath, strings.NewReader("{}")))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if ct := res.Header.Get("Content-Type"); ct != "application/json; charset=UTF-8" {
			t.Error(ct)
		}
		first := strings.TrimSuffix(arrayBegin+delta("Hello"), "\n")
		b := make([]byte, len(first))
		if _, err := io.ReadFull(res.Body, b); string(b) != first {
			t.Errorf("%q, %v", b, err)
		}
		close(go1)
		second := "\n" + strings.TrimSuffix(delta(" world"), "\n")
		b = make([]byte, len(second))
		if _, err := io.ReadFull(res.Body, b); string(b) != second {
			t.Errorf("%q, %v", b, err)
		}
		close(go2)
		rest, err := io.ReadAll(res.Body) // it ends, though the upstream does not
		if got := first + second + string(rest); got != whole || err != nil {
			t.Errorf("%v, got %q, want %q", err, got, whole)
		}
		a.wantOrder("k1")
	})
	for _, tc := range []struct {
		name  string
		first reply
		body  string // "" is k2's
		cut   bool
	}{
		{"whole", says(200, whole), whole, false},
		{"bit by bit", array(bytesOf(strings.TrimSpace(whole))...), strings.TrimSpace(whole), false}, // nobody waits for what follows the bracket
		{"no array: a whole answer", says(200, `{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}]}`), `{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}]}`, false},
		{"blocked", says(200, `[{"promptFeedback":{"blockReason":"SAFETY"}}]`), `[{"promptFeedback":{"blockReason":"SAFETY"}}]`, false},
		{"empty", says(200, "[]"), "", false},
		{"nothing", says(200, ""), "", false},
		{"blanks", says(200, " \n "), "", false},
		{"no content", array(arrayBegin, "]"), "", false},
		{"cut before content", array(arrayBegin, ",", cut{}), "", false},
		{"ends before content", array(arrayBegin, ","), "", false},
		{"opens and ends", array("["), "", false},
		{"reset before content", array(arrayBegin, rst{}), "", false},
		{"stalls before content", array(arrayBegin, hang{}), "", false},
		{"silent", array(hang{}), "", false},
		{"error first", array("["+strings.TrimLeft(arrayFailed, ",\r\n"), "]"), "", false},
		{"error before content", array(arrayBegin, arrayFailed, "]"), "", false},
		{"an error object", says(200, strings.TrimLeft(arrayFailed, ",\r\n")), "", false},
		{"garbage", says(200, "[garbage]"), "", false},
		{"HTML", says(200, "<html></html>"), "", false},
		{"error after content", array(arrayBegin, delta("Hello"), arrayFailed, "]"), arrayBegin + strings.TrimSuffix(delta("Hello"), "\n") + "\n" + arrayFailed, true},
		{"cut after content", array(arrayBegin, delta("Hello"), delta("Hello")[:30], cut{}), arrayBegin + strings.TrimSuffix(delta("Hello"), "\n") + `,` + "\r\n" + `{"error":{"code":502`, true},
		{"stalls after content", array(arrayBegin, delta("Hello"), hang{}), arrayBegin + strings.TrimSuffix(delta("Hello"), "\n") + `,` + "\r\n" + `{"error":{"code":502`, true},
		{"no bracket", array(arrayBegin, arrayLast), arrayBegin + strings.TrimSuffix(arrayLast, "\n") + `,` + "\r\n" + `{"error":{"code":502`, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newUpstream(t).on("k1", tc.first).on("k2", says(200, whole))
			s := serve(t, pair(a, short))
			got := s.post(arrayPath, "{}")
			if tc.cut {
				if got.wantAborted(); !strings.HasPrefix(got.body, tc.body) || strings.HasSuffix(got.body, "]") {
					t.Errorf("got %q, want %q…", got.body, tc.body)
				}
				a.wantOrder("k1")
				s.wantState("default.keys.k1.totals.failures", "1")
				return
			}
			got.want(200)
			if tc.body == "" {
				a.wantOrder("k1 k2")
				tc.body = whole
			}
			if got.body != tc.body {
				t.Errorf("got %q, want %q", got.body, tc.body)
			}
		})
	}
}
