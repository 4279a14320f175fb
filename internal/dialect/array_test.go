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

package dialect

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

func TestNextElement(t *testing.T) {
	for _, tc := range []struct {
		array string
		want  []string
	}{
		{`[{"a":1},{"b":[{}]}]`, []string{`[{"a":1}`, `,{"b":[{}]}`, `]`}},
		{"[ {\"a\":\"]}\\\"\"}\n,\r\n{} ]\n", []string{`[ {"a":"]}\""}`, "\n,\r\n{}", " ]\n"}},
		{`[]`, []string{`[]`}},
		{`[{"a":"`, nil},
		{`[{}`, []string{`[{}`}},
		{`[{},`, []string{`[{}`}},
		{`[`, nil},
		{``, nil},
		{`[1,{}]`, nil},
		{`garbage`, nil},
	} {
		var got []string
		b := []byte(tc.array)
		for n := NextElement(b); n > 0; n = NextElement(b) {
			got = append(got, string(b[:n]))
			b = b[n:]
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%q: got %q, want %q", tc.array, got, tc.want)
		}
	}
}

// FuzzNextElement: a valid array of objects is cut into these, wherever what has come ends.
func FuzzNextElement(f *testing.F) {
	f.Add([]byte(`[{"a":"]}\""} , {"b":[{}]}]`), 7)
	f.Add([]byte(`[]`), 1)
	f.Fuzz(func(t *testing.T, b []byte, split int) {
		var want []map[string]json.RawMessage
		valid := json.Unmarshal(b, &want) == nil && want != nil && !bytes.Contains(b, []byte("null"))
		var got [][]byte
		ended := false
		end := max(0, min(split, len(b)))
		for at := 0; ; {
			n := NextElement(b[at:end])
			if n < 0 || n > end-at {
				t.Fatalf("%d of %d", n, end-at)
			}
			if n == 0 && end == len(b) {
				break
			}
			if n == 0 {
				end = len(b)
				continue
			}
			if data := Element(b[at : at+n]); len(data) > 0 {
				got = append(got, data)
			} else {
				ended = true
			}
			at += n
		}
		if !valid {
			return
		}
		if !ended || len(got) != len(want) {
			t.Fatalf("%q: %d elements of %d, ended %v", b, len(got), len(want), ended)
		}
		for _, g := range got {
			if !json.Valid(g) {
				t.Fatalf("%q is no element of %q", g, b)
			}
		}
	})
}
