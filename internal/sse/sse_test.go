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

package sse

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func TestNextAndLast(t *testing.T) {
	for _, tc := range []struct {
		in         string
		next, last int
	}{
		{"", 0, 0},
		{"data: x", 0, 0},
		{"data: x\n", 0, 0},
		{"data: x\r", 0, 0},
		{"data: x\r\n", 0, 0},
		{"data: x\n\n", 9, 9},
		{"data: x\r\r", 9, 9},
		{"data: x\r\n\r\n", 11, 11},
		{"data: x\r\n\r", 10, 10},
		{"data: x\r\n\rdata", 10, 10},
		{"data: x\n\r\ndata: y\n", 10, 10},
		{"data: x\n\rdata: y", 9, 9},
		{"data: x\r\n\ndata: y", 10, 10},
		{"data: x\r\n\ndata: y\r\n\ndata", 10, 20},
		{"a\n\nb\n\nc\n\nd", 3, 9},
		{"\n", 1, 1},
		{"\r", 1, 1},
		{"\r\n", 2, 2},
		{"\n\n\n", 1, 3},
		{"\ndata: x\n", 1, 1},
		{"a\n\n\n\nb", 3, 5},
		{"a\n\n\r\nb", 3, 5},
		{"a\r\n\r\n\r", 5, 6},
		{": hi\n\n", 6, 6},
	} {
		if got := Next([]byte(tc.in)); got != tc.next {
			t.Errorf("Next(%q) = %d, want %d", tc.in, got, tc.next)
		}
		if got := Last([]byte(tc.in)); got != tc.last {
			t.Errorf("Last(%q) = %d, want %d", tc.in, got, tc.last)
		}
	}
}

func TestLastBehindALongTail(t *testing.T) {
	for n := range 3 * window {
		b := append([]byte("data: x\r\n\r\n"), bytes.Repeat([]byte("a"), n)...)
		if got := Last(b); got != 11 {
			t.Fatalf("tail of %d: %d", n, got)
		}
		b = append(b, "\r\ndata: y"...)
		if got := Last(b); n > 0 && got != 11 {
			t.Fatalf("tail of %d and a line end: %d", n, got)
		}
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		in, name string
		data     []byte // nil: none
	}{
		{"data: x\n\n", "", []byte("x")},
		{"data:x\n\n", "", []byte("x")},
		{"data:  x \n\n", "", []byte(" x ")},
		{"data\n\n", "", []byte{}},
		{"data:\n\n", "", []byte{}},
		{"data: \n\n", "", []byte{}},
		{"data\ndata\n\n", "", []byte("\n")},
		{"data: a\ndata: b\r\ndata: c\rdata:\n\n", "", []byte("a\nb\nc\n")},
		{"event: e\ndata: x\n\n", "e", []byte("x")},
		{"data: x\nevent: d\nevent:e\n\n", "e", []byte("x")},
		{"event: e\nevent\ndata: x\n\n", "", []byte("x")},
		{"event: e\n\n", "", nil},
		{": hi\n\n", "", nil},
		{":\n\n", "", nil},
		{"\n", "", nil},
		{"", "", nil},
		{"\xef\xbb\xbfdata: x\n\n", "", []byte("x")},
		{"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", "", nil},
		{"Data: x\n data: y\ndata : z\n\n", "", nil},
		{"error: {}\n\n", "", nil},
		{": c\nid: 1\x00\nretry: 5\ndata: a:b\x00\n\n", "", []byte("a:b\x00")},
		{"data: [DONE]", "", []byte("[DONE]")},
	} {
		got := Parse([]byte(tc.in), nil)
		if got.Name != tc.name || !reflect.DeepEqual(got.Data, tc.data) {
			t.Errorf("Parse(%q) = %q %q (nil: %v)", tc.in, got.Name, got.Data, got.Data == nil)
		}
	}
}

func TestParseUsesTheBuffer(t *testing.T) {
	buf := make([]byte, 0, 64)
	raw := []byte("data: a\ndata: b\n\n")
	if n := testing.AllocsPerRun(100, func() { Parse(raw, buf) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if string(raw) != "data: a\ndata: b\n\n" {
		t.Errorf("the stream was changed: %q", raw)
	}
}

// reference reads a whole stream as the specification words it. Line ends are made alike first.
func reference(stream string) (events []Event) {
	stream = strings.TrimPrefix(stream, "\ufeff")
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(stream, "\n")
	var name, data string
	for _, line := range lines[:len(lines)-1] { // the last one has no end
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != "" {
				events = append(events, Event{name, []byte(strings.TrimSuffix(data, "\n"))})
			}
			name, data = "", ""
		case field == "event":
			name = value
		case field == "data":
			data += value + "\n"
		}
	}
	return events
}

// inPieces reads a stream that arrives in two pieces the way the relay does: whole events as they come.
func inPieces(first, second []byte) (events []Event) {
	var held []byte
	for _, piece := range [][]byte{first, second} {
		held = append(held, piece...)
		for n := Next(held); n > 0; n = Next(held) {
			if e := Parse(held[:n], nil); e.Data != nil {
				events = append(events, Event{e.Name, bytes.Clone(e.Data)})
			}
			held = held[n:]
		}
	}
	return events
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"data: x\n\n", "event: e\r\ndata: a\r\ndata: b\r\n\r\n: c\n\ndata: [DONE]\r\r", "\ufeffdata\r\n\rdata:\n\r\n\n", "data: x\n\r",
	} {
		f.Add([]byte(s), 7)
	}
	f.Fuzz(func(t *testing.T, stream []byte, at int) {
		if len(stream) > 0 {
			at = int(uint(at) % uint(len(stream)))
		} else {
			at = 0
		}
		// Parse takes a byte order mark off each event, the reference off the stream only.
		if bytes.Contains(stream[min(1, len(stream)):], bom) {
			return
		}
		want, got := reference(string(stream)), inPieces(stream[:at], stream[at:])
		if len(want) != len(got) {
			t.Fatalf("%q at %d: %d events, want %d", stream, at, len(got), len(want))
		}
		for i := range want {
			if want[i].Name != got[i].Name || !bytes.Equal(want[i].Data, got[i].Data) {
				t.Fatalf("%q at %d: event %d is %q, want %q", stream, at, i, got[i], want[i])
			}
		}
	})
}

// FuzzNext holds Last against Next: the last boundary is where one gets from boundary to boundary.
func FuzzNext(f *testing.F) {
	for _, s := range []string{"a\n\nb\r\n\r\nc", "\r\n\n\r\r\n", "a\r", "\n\na\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		end := 0
		for n := Next(b); n > 0; n = Next(b[end:]) {
			end += n
		}
		if got := Last(b); got != end {
			t.Fatalf("Last(%q) = %d, Next leads to %d", b, got, end)
		}
	})
}

var delta = []byte(`data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" Hello"},"logprobs":null,"finish_reason":null}]}` + "\n\n")

func BenchmarkNext(b *testing.B) {
	b.SetBytes(int64(len(delta)))
	b.ReportAllocs()
	for b.Loop() {
		Next(delta)
	}
}

func BenchmarkLast(b *testing.B) {
	chunk := bytes.Repeat(delta, 4)
	for name, in := range map[string][]byte{"whole": chunk, "tail": append(bytes.Clone(chunk), delta[:200]...)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Last(in)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Parse(delta, nil)
	}
}
