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
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestScrub(t *testing.T) {
	const value = "sk-proj-0123456789abcdef"
	s := newSecret(value)
	for _, tc := range []struct{ text, want string }{
		{"", ""},
		{"nothing of it", "nothing of it"},
		{value, redacted},
		{"the key " + value + " is wrong", "the key " + redacted + " is wrong"},
		{value + value, redacted + redacted},
		{value + " and " + value, redacted + " and " + redacted},
		{"its end 89abcdef", "its end " + redacted},
		{"its end 9abcdef", "its end 9abcdef"}, // seven bytes are a mask
		{"sk-proj-***cdef", "sk-proj-***cdef"}, // what everybody's key begins with gives nothing away
		{"OPENAI_API_KEY=sk-proj-YOUR-KEY", "OPENAI_API_KEY=sk-proj-YOUR-KEY"},
		{"sk-proj***cdef", "sk-proj***cdef"},
		{"x" + value[3:20] + "y", "x" + redacted + "y"},
		{value[:10] + value[2:12], redacted + redacted},
	} {
		if got := string(s.scrub([]byte(tc.text))); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.text, got, tc.want)
		}
	}
	text := []byte("as it was")
	if got := s.scrub(text); &got[0] != &text[0] {
		t.Error("it was copied although there was nothing to scrub")
	}
	if got := string(newSecret("short").scrub([]byte("a short one: shor"))); got != "a "+redacted+" one: shor" {
		t.Error(got)
	}
}

// TestSecretDoesNotFormat: no verb shows more than the fingerprint.
func TestSecretDoesNotFormat(t *testing.T) {
	s := newSecret("sk-proj-0123456789abcdef")
	for _, verb := range []string{"%v", "%s", "%+v", "%q"} {
		if got := fmt.Sprintf(verb, s); strings.Contains(got, "0123") || !strings.Contains(got, "sha256:") {
			t.Errorf("%s: %s", verb, got)
		}
	}
}

// TestScrubHeader: whatever of the secret an upstream echoes in a header, it does not reach the caller.
func TestScrubHeader(t *testing.T) {
	const value = "wk-proj-0123456789abcdef" // no public prefix
	s := newSecret(value)
	for from := range value {
		for to := from + leakLength; to <= len(value); to++ {
			h := http.Header{"X-Request-Id": {"fine", "<" + value[from:to] + ">"}, "Date": {"today"}}
			s.scrubHeader(h)
			if got := h["X-Request-Id"][1]; got != "<"+redacted+">" {
				t.Fatalf("%d bytes from %d on: %s", to-from, from, got)
			}
			if h["X-Request-Id"][0] != "fine" || h["Date"][0] != "today" {
				t.Error(h)
			}
		}
	}
}

// FuzzScrub: no eight bytes of the secret in a row are left, and what has none is left alone.
func FuzzScrub(f *testing.F) {
	f.Add("sk-proj-0123456789abcdef", []byte("the key sk-proj-0123456789abcdef is wrong"))
	f.Add("aaaaaaaaaaaaaaaa", []byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"))
	f.Add("abcabcabcabcabc", []byte("abcabcabXabcabcabcabcab"))
	f.Add("k", []byte("kkk"))
	f.Fuzz(func(t *testing.T, value string, text []byte) {
		if value == "" || strings.ContainsAny(value, redacted) && len(value) < leakLength || strings.ContainsAny(value, "[]") {
			return // the mark itself would hold the secret
		}
		n := min(leakLength, len(value))
		leaks := func(b []byte) bool {
			for i := 0; i+n <= len(value); i++ {
				if i+n <= publicPrefix(value) {
					continue
				}
				if bytes.Contains(b, []byte(value[i:i+n])) {
					return true
				}
			}
			return false
		}
		if leaks([]byte(redacted)) {
			return
		}
		got := newSecret(value).scrub(append([]byte(nil), text...))
		if leaks(got) {
			t.Errorf("%q of %q: %q", text, value, got)
		}
		if !leaks(text) && !bytes.Equal(got, text) {
			t.Errorf("%q became %q", text, got)
		}
	})
}
