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
	"bufio"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// maxZstdWindow is the largest window that a body in zstd may ask for (RFC 9659).
const maxZstdWindow = 8 << 20

// several stands for more than one coding, which nobody uses and nothing here reads.
const several = "several"

var (
	errCoding  = errors.New("a content coding that cannot be read")
	errGarbage = errors.New("something follows the end of the compressed data")

	// errNotCoded: the data is not in the coding that it is said to be in. What newDecoder returns reads it as it is.
	errNotCoded = errors.New("the data is not in the coding that its header names")
)

// magics is what data in a coding begins with.
var magics = map[string]string{"gzip": "\x1f\x8b", "x-gzip": "\x1f\x8b", "zstd": "\x28\xb5\x2f\xfd"}

// codingOf returns the coding that a body is in, in small letters; empty if it is in none.
func codingOf(h http.Header) string {
	coding := ""
	for _, line := range h["Content-Encoding"] {
		for c := range strings.SplitSeq(line, ",") {
			switch c = strings.ToLower(strings.TrimSpace(c)); {
			case c == "", c == "identity":
			case coding != "":
				return several
			default:
				coding = c
			}
		}
	}
	return coding
}

// newDecoder returns a reader of what r holds in a coding, or errCoding. It ends properly only where the compressed
// data ends and nothing follows it.
func newDecoder(coding string, r io.Reader) (io.Reader, error) {
	raw := bufio.NewReader(r)
	if magic, known := magics[coding]; known {
		if begun, err := raw.Peek(len(magic)); err == nil && string(begun) != magic {
			return raw, errNotCoded
		}
	}
	d := &decoder{raw: raw}
	var err error
	switch coding {
	case "gzip", "x-gzip":
		d.Reader, err = gzip.NewReader(raw)
	case "deflate":
		d.Reader, err = zlib.NewReader(raw)
	case "zstd":
		d.Reader, err = zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
	case "br":
		d.Reader = brotli.NewReader(raw)
	default:
		return nil, errCoding
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return d, err
}

// decoder reads through a decoder and looks whether all was read: that of deflate stops where it is done.
type decoder struct {
	io.Reader
	raw *bufio.Reader
}

// Read implements io.Reader.
func (d *decoder) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if err != io.EOF {
		return n, err
	}
	if _, after := d.raw.ReadByte(); after == nil {
		return n, errGarbage
	} else if after != io.EOF {
		return n, after
	}
	return n, io.EOF
}
