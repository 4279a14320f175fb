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
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmfailover/caddy-llm-failover/internal/sse"
)

// String writes a signal as the test data do.
func (s Signal) String() string {
	var words []string
	for i, w := range []string{"content", "finished", "terminal", "failed"} {
		if s&(1<<i) != 0 {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

func (b Body) String() string { return [...]string{"good", "empty", "failed", "foreign", "cut"}[b] }

// signals reads the words that String writes, in any order.
func signals(words string) (s Signal) {
	for w := range strings.FieldsSeq(words) {
		s |= map[string]Signal{"content": Content, "finished": Finished, "terminal": Terminal, "failed": Failed}[w]
	}
	return s
}

// eachEvent calls f with each event of the streams in testdata/streams, in which the comment before an event says
// which signals it gives.
func eachEvent(tb testing.TB, f func(file string, d Dialect, want Signal, raw []byte)) {
	files, err := filepath.Glob("testdata/streams/*.sse")
	if err != nil || len(files) == 0 {
		tb.Fatal("no streams", err)
	}
	for _, file := range files {
		stream, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		family, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".sse"), "-")
		for n := sse.Next(stream); n > 0; n = sse.Next(stream) {
			comment, _, _ := strings.Cut(string(stream[:n]), "\n")
			want, ok := strings.CutPrefix(comment, ": =")
			if !ok {
				tb.Fatalf("%s: an event without an expectation: %s", file, stream[:n])
			}
			f(file, Dialect(family), signals(want), stream[:n])
			stream = stream[n:]
		}
		if len(stream) > 0 {
			tb.Fatalf("%s: left over: %s", file, stream)
		}
	}
}

func TestStreams(t *testing.T) {
	eachEvent(t, func(file string, d Dialect, want Signal, raw []byte) {
		e := sse.Parse(raw, nil)
		if got := d.Event(e.Name, e.Data); got != want {
			t.Errorf("%s: %q instead of %q for\n%s", file, got, want, raw)
		}
		if notable := d.Notable(raw); want&^Content != 0 && !notable {
			t.Errorf("%s: not notable:\n%s", file, raw)
		} else if notable && want&^Content == 0 && bytes.Contains(raw, []byte(`"delta"`)) && bytes.Count(raw, []byte("data:")) == 1 {
			t.Errorf("%s: an ordinary delta is notable:\n%s", file, raw)
		}
		for _, end := range []string{"\r", "\r\n"} {
			if other := bytes.ReplaceAll(raw, []byte("\n"), []byte(end)); d.Notable(other) != d.Notable(raw) {
				t.Errorf("%s: Notable with another line end:\n%s", file, raw)
			}
		}
	})
}

func TestCorpus(t *testing.T) {
	lines, err := os.ReadFile("testdata/corpus.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(lines) {
		var row struct {
			ID, API, Body, Want string
			Stream              bool
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		d := Dialect(row.API)
		if !row.Stream {
			if got := (Route{Dialect: d, Generates: true}).Body([]byte(row.Body)).String(); got != row.Want {
				t.Errorf("%s: %s, want %s", row.ID, got, row.Want)
			}
			continue
		}
		var told []string
		for b := []byte(row.Body); sse.Next(b) > 0; b = b[sse.Next(b):] {
			e := sse.Parse(b[:sse.Next(b)], nil)
			if s := d.Event(e.Name, e.Data); s != 0 {
				told = append(told, s.String())
			}
		}
		if got := strings.Join(told, ", "); got != row.Want {
			t.Errorf("%s: %q, want %q", row.ID, got, row.Want)
		}
	}
}

func TestEventOddities(t *testing.T) {
	deep := `{"choices":` + strings.Repeat("[", 1<<20)
	for _, tc := range []struct {
		d          Dialect
		name, data string
		want       Signal
	}{
		{Chat, "", "", 0},
		{Chat, "", "{}", 0},
		{Chat, "", "null", 0},
		{Chat, "", `"error"`, 0},
		{Chat, "", " [DONE] ", Terminal},
		{Chat, "", `{"choices":"x"}`, 0},
		{Chat, "", `{"choices":[{"delta":"x"},1,null,[]]}`, 0},
		{Chat, "", `{"choices":[{"delta":{"content":"x"}}]} {}`, 0},
		{Chat, "", `{"choices":[{"delta":{"content":"x"}},]}`, 0},
		{Chat, "", `{"choices":[{"delta":{"content":"` + "\x01" + `"}}]}`, 0},
		{Chat, "", deep, 0},
		{Chat, "", `{"choices":[{"delta":{"content":"\\"},"finish_reason":"stop"}]}`, Content | Finished},
		{Chat, "error", "{}", Failed},
		{Chat, "", `{"error":false,"choices":[]}`, 0},
		{Chat, "", `{"error":"","choices":[]}`, 0},
		{Dialect("other"), "", `{"choices":[{"text":"x"}]}`, Content},
		{Messages, "content_block_start", `{"content_block":{}}`, 0},
		{Messages, "", `{"type":"content_block_start"}`, 0},
		{Messages, "message_stop", `[]`, 0},
		{Responses, "response.completed", `{}`, Terminal | Finished},
		{Responses, "", `{"type":"response.completed","response":{"status":"failed","error":{"message":"x"}}}`, Terminal | Failed},
		{Responses, "", `{"type":"response.output_item.added","item":{}}`, 0},
		{Gemini, "", `[{"candidates":[{"content":{"parts":[{"text":"x"}]}}]},{"candidates":[{"finishReason":"STOP"}]}]`, Content | Finished},
	} {
		if got := tc.d.Event(tc.name, []byte(tc.data)); got != tc.want {
			t.Errorf("%s %q %.80s: %q, want %q", tc.d, tc.name, tc.data, got, tc.want)
		}
	}
}

func TestCredential(t *testing.T) {
	for d, want := range map[Dialect][2]string{
		Chat: {"Authorization", "Bearer "}, Responses: {"Authorization", "Bearer "}, Messages: {"X-Api-Key"}, Gemini: {"X-Goog-Api-Key"},
	} {
		if field, prefix := d.Credential(); field != want[0] || prefix != want[1] {
			t.Errorf("%s: %q %q", d, field, prefix)
		}
	}
}
