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
	"testing"

	"github.com/llmfailover/caddy-llm-failover/internal/sse"
)

func dialectOf(n byte) Dialect { return All[int(n)%len(All)] }

func seedEvents(f *testing.F, add func(d byte, name string, data []byte)) {
	eachEvent(f, func(_ string, d Dialect, _ Signal, raw []byte) {
		e := sse.Parse(raw, nil)
		for i := range All {
			if All[i] == d {
				add(byte(i), e.Name, e.Data)
			}
		}
	})
}

// FuzzEvent: what is no JSON tells nothing.
func FuzzEvent(f *testing.F) {
	seedEvents(f, func(d byte, name string, data []byte) { f.Add(d, name, data) })
	f.Fuzz(func(t *testing.T, d byte, name string, data []byte) {
		s := dialectOf(d).Event(name, data)
		data = bytes.TrimSpace(data)
		if s != 0 && name != "error" && string(data) != "[DONE]" && !json.Valid(data) {
			t.Fatalf("%s %q %q: %q", dialectOf(d), name, data, s)
		}
	})
}

// FuzzNotable: the cheap search misses nothing that the judge would see.
func FuzzNotable(f *testing.F) {
	seedEvents(f, func(d byte, name string, data []byte) { f.Add(d, framed(name, data)) })
	f.Fuzz(func(t *testing.T, n byte, stream []byte) {
		stream = append(stream, "\n\n"...)
		stream = stream[:sse.Last(stream)]
		d, all := dialectOf(n), Signal(0)
		for rest := stream; len(rest) > 0; rest = rest[sse.Next(rest):] {
			if e := sse.Parse(rest[:sse.Next(rest)], nil); e.Data != nil {
				all |= d.Event(e.Name, e.Data)
			}
		}
		if all&^Content != 0 && !d.Notable(stream) {
			t.Fatalf("%s: %q in %q", d, all, stream)
		}
	})
}

func framed(name string, data []byte) []byte {
	out := []byte("event: " + name + "\ndata: ")
	return append(append(out, bytes.ReplaceAll(data, []byte("\n"), []byte("\ndata: "))...), "\n\n"...)
}

// FuzzBody: a good answer without its last byte is a cut one.
func FuzzBody(f *testing.F) {
	for i, d := range All {
		for _, tc := range bodies {
			if tc.d == d {
				f.Add(byte(i), true, []byte(tc.body))
			}
		}
	}
	f.Add(byte(0), false, []byte(`{"error":{}}`))
	f.Fuzz(func(t *testing.T, d byte, generates bool, data []byte) {
		rt := Route{Dialect: dialectOf(d), Generates: generates}
		got := rt.Body(data)
		trimmed := bytes.TrimSpace(data)
		if !generates || got != BodyGood || !json.Valid(trimmed) {
			return
		}
		if cut := trimmed[:len(trimmed)-1]; rt.Body(cut) != BodyCut {
			t.Fatalf("%s %q: cut by a byte it is %v", rt.Dialect, data, rt.Body(cut))
		}
	})
}

var deltas = map[Dialect]string{
	Chat:      `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" Hello"},"logprobs":null,"finish_reason":null}]}` + "\n\n",
	Responses: `event: response.output_text.delta` + "\n" + `data: {"type":"response.output_text.delta","sequence_number":8,"item_id":"msg_67c9fdcf37fc8190ba82116e33fb28c507b8b0ad4e5eb654","output_index":0,"content_index":0,"delta":" Hello","logprobs":[],"obfuscation":"xYz"}` + "\n\n",
	Messages:  `event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" Hello, this is a piece"}}` + "\n\n",
	Gemini:    `data: {"candidates":[{"content":{"parts":[{"text":" Hello, this is a somewhat longer piece of \"text\" than others send."}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":4,"totalTokenCount":12},"modelVersion":"gemini-2.5-flash"}` + "\n\n",
}

func BenchmarkNotable(b *testing.B) {
	for _, d := range All {
		piece := []byte(deltas[d])
		b.Run(string(d), func(b *testing.B) {
			b.SetBytes(int64(len(piece)))
			b.ReportAllocs()
			for b.Loop() {
				if d.Notable(piece) {
					b.Fatal("notable")
				}
			}
		})
	}
}

func BenchmarkEvent(b *testing.B) {
	for _, d := range All {
		e := sse.Parse([]byte(deltas[d]), nil)
		b.Run(string(d), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d.Event(e.Name, e.Data) != Content {
					b.Fatal("no content")
				}
			}
		})
	}
}

func BenchmarkBody(b *testing.B) {
	body := []byte(longChat)
	rt := Route{Dialect: Chat, Generates: true}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if rt.Body(body) != BodyGood {
			b.Fatal("not good")
		}
	}
}

func BenchmarkRouteOf(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		RouteOf("POST", "/v1/chat/completions")
	}
}
