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
	"compress/gzip"
	"compress/zlib"
	"crypto/rand"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

const (
	modelField  = "Content-Disposition: form-data; name=\"model\"\r\n\r\n"
	streamField = "Content-Disposition: form-data; name=\"stream\"\r\n\r\n"
	fileField   = "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n"
)

// formOf is a form of parts, header and value each.
func formOf(parts ...string) string {
	return "--b\r\n" + strings.Join(parts, "\r\n--b\r\n") + "\r\n--b--\r\n"
}

func TestPeekForm(t *testing.T) {
	for _, tc := range []struct {
		name, body, model string
		stream            bool
	}{
		{"one field", formOf(modelField + "whisper"), "whisper", false},
		{"after the file", formOf(fileField+"\x00\r\n--c\r\n--bb\r\n-", modelField+"whisper", streamField+"true"), "whisper", true},
		{"stream in other words", formOf(streamField+"True", modelField+"m"), "m", true},
		{"no stream", formOf(streamField+"false", modelField+"m"), "m", false},
		{"twice: the last counts", formOf(modelField+"a", modelField+"b"), "b", false},
		{"preamble and padding", "hello\r\n--b \t\r\n" + modelField + "m\r\n--b--", "m", false},
		{"more header lines", formOf("Content-Type: text/plain\r\ncontent-disposition: form-data; name=model\r\n\r\nm"), "m", false},
		{"the name of a longer delimiter", formOf(modelField + "m\r\n--bother"), "m\r\n--bother", false},
		{"a file of that name", formOf("Content-Disposition: form-data; name=\"model\"; filename=\"x\"\r\n\r\nm"), "", false},
		{"encoded", formOf("Content-Transfer-Encoding: base64\r\n" + modelField + "bQ=="), "", false},
		{"another field", formOf("Content-Disposition: form-data; name=\"models\"\r\n\r\nm"), "", false},
		{"an attachment", formOf("Content-Disposition: attachment; name=\"model\"\r\n\r\nm"), "", false},
		{"empty value", formOf(modelField, streamField+"true"), "", true},
		{"empty value without a line of its own", "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n--b--", "", false},
		{"a part without a header", formOf("\r\nx", modelField+"m"), "m", false},
		{"the beginning only", strings.TrimSuffix(formOf(modelField+"m", fileField+"xyz"), "\r\n--b--\r\n"), "m", false},
		{"the beginning only, within a header", strings.TrimSuffix(formOf(modelField+"m", "Content-Dispo"), "\r\n--b--\r\n"), "m", false},
		{"the beginning only, within the field", strings.TrimSuffix(formOf(modelField+"m"), "\r\n--b--\r\n"), "", false},
		{"after the end", formOf(fileField+"x") + "--b\r\n" + modelField + "m\r\n--b--\r\n", "", false},
		{"line ends without CR", strings.ReplaceAll(formOf(modelField+"m"), "\r\n", "\n"), "", false},
		{"no delimiter", modelField + "m", "", false},
		{"a part that is none", formOf(modelField+"m", "nonsense", modelField+"m"), "", false},
		{"a folded header line", formOf("Content-Disposition: form-data;\r\n name=\"model\"\r\n\r\nm"), "", false},
		{"a header without end", formOf(modelField+"m", strings.Repeat("x: y\r\n", 1000)), "", false},
		{"nothing", "", "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := peekForm([]byte(tc.body), "b")
			if got.model != tc.model || got.stream != tc.stream || got.background {
				t.Errorf("got %+v, want %q, %v", got, tc.model, tc.stream)
			}
			if at := tc.body[got.modelAt[0]:got.modelAt[1]]; at != tc.model {
				t.Errorf("it stands at %q", at)
			}
		})
	}
}

// FuzzMultipart: whatever is found is found by Go's own reader too.
func FuzzMultipart(f *testing.F) {
	f.Add([]byte(formOf(fileField+"\x00\r\n--bb\r\n", modelField+"m", streamField+"true")), "b")
	f.Add([]byte(formOf(modelField)), "b")
	f.Add([]byte("x\r\n--b\r\n\r\n\r\n--b\r\n"+modelField+"\r\n--b--"), "b")
	f.Fuzz(func(t *testing.T, b []byte, boundary string) {
		got := peekForm(b, boundary)
		if at := string(b[got.modelAt[0]:got.modelAt[1]]); at != got.model {
			t.Fatalf("model %q stands at %q", got.model, at)
		}
		if got.model == "" || strings.ContainsAny(boundary, "\r\n \t") {
			return
		}
		last := ""
		for r := multipart.NewReader(bytes.NewReader(b), boundary); ; {
			part, err := r.NextRawPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				return // it is stricter about names and values of header fields
			}
			value, err := io.ReadAll(part)
			if err != nil {
				return
			}
			if part.FormName() == "model" && part.FileName() == "" && part.Header.Get("Content-Transfer-Encoding") == "" {
				last = string(value)
			}
		}
		if last != got.model {
			t.Fatalf("model %q, Go reads %q", got.model, last)
		}
	})
}

// BenchmarkPeekForm: the model comes after a file of 24 MiB.
func BenchmarkPeekForm(b *testing.B) {
	file := make([]byte, 24<<20)
	rand.Read(file)
	body := []byte(formOf(fileField+string(file), modelField+"whisper"))
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if peekForm(body, "b").model == "" {
			b.Fatal("not found")
		}
	}
}

// compressed is a text in a coding.
func compressed(t testing.TB, coding, text string) string {
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "zstd":
		w, err = zstd.NewWriter(&b)
	case "br":
		w = brotli.NewWriter(&b)
	}
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPeekCompressed(t *testing.T) {
	long := strings.Repeat("lorem ipsum ", 100_000)
	for _, tc := range []struct {
		name, header, coding, path, body string
		model                            string
		stream, repeatable, damaged      bool
	}{
		{"gzip", "gzip", "gzip", "/v1/chat/completions", `{"model":"m","stream":true}`, "m", true, true, false},
		{"zstd", "zstd", "zstd", "/v1/responses", `{"model":"m","stream":true}`, "m", true, true, false},
		{"deflate", "DEFLATE", "deflate", "/v1/messages", `{"model":"m"}`, "m", false, true, false},
		{"br", "br", "br", "/v1/messages", `{"model":"m"}`, "m", false, true, false},
		{"identity beside it", "identity, gzip", "gzip", "/v1/messages", `{"model":"m"}`, "m", false, true, false},
		{"a background job", "gzip", "gzip", "/v1/responses", `{"model":"m","background":true}`, "m", false, false, false},
		{"the model comes last", "zstd", "zstd", "/v1/chat/completions", `{"messages":"` + long + `","model":"m"}`, "m", false, true, false},
		{"two codings", "gzip, br", "gzip", "/v1/chat/completions", `{"model":"m"}`, "", false, true, false},
		{"two codings: it may be a background job", "gzip, br", "gzip", "/v1/responses", `{"model":"m"}`, "", false, false, false},
		{"an unknown one", "compress", "gzip", "/v1/chat/completions", `{"model":"m"}`, "", false, true, false},
		{"not what it says", "zstd", "gzip", "/v1/chat/completions", `{"model":"m"}`, "", false, true, false},
		{"cut", "gzip", "gzip", "/v1/responses", `{"input":"` + strings.Repeat("hi", 1000) + `","model":"m"}`, "", false, false, true},
		{"a bomb", "gzip", "gzip", "/v1/chat/completions", `{"x":"` + strings.Repeat("0", 32<<20) + `","model":"m"}`, "", false, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body := compressed(t, tc.coding, tc.body)
			if tc.damaged {
				body = body[:len(body)/2]
			}
			r := httptest.NewRequest(http.MethodPost, tc.path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Content-Encoding", tc.header)
			in, err := read(r, limitsOf(1<<20))
			if err != nil {
				t.Fatal(err)
			}
			defer in.done()
			if in.model != tc.model || in.stream() != tc.stream || in.repeatable() != tc.repeatable || !in.sealed {
				t.Errorf("model %q, stream %v, repeatable %v", in.model, in.stream(), in.repeatable())
			}
			sent, size := in.bodyFor("another")
			defer sent.Close()
			if b, err := io.ReadAll(sent); string(b) != body || int64(len(b)) != size || err != nil {
				t.Errorf("%d bytes of %d, %v", len(b), size, err)
			}
		})
	}
}

// TestDecoder: an answer ends where its compressed data ends, and nowhere else.
func TestDecoder(t *testing.T) {
	text := strings.Repeat("some words, ", 10_000)
	for _, coding := range []string{"gzip", "deflate", "zstd", "br"} {
		whole := compressed(t, coding, text)
		for _, tc := range []struct {
			name, body string
			fine       bool
		}{
			{"whole", whole, true}, {"cut", whole[:len(whole)-1], false}, {"garbage", whole + "x", false}, {"empty", "", coding == "zstd"}, {"cut early", whole[:1], false},
		} {
			r, err := newDecoder(coding, strings.NewReader(tc.body))
			var b []byte
			if err == nil {
				b, err = io.ReadAll(r)
			}
			if (err == nil) != tc.fine || tc.fine && tc.body != "" && string(b) != text {
				t.Errorf("%s, %s: %d bytes, %v", coding, tc.name, len(b), err)
			}
		}
	}
	for _, coding := range []string{several, "compress"} {
		if _, err := newDecoder(coding, strings.NewReader("")); !errors.Is(err, errCoding) {
			t.Errorf("%s: %v", coding, err)
		}
	}
}
