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
	"mime"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// How much is searched.
const (
	// peekLimit is how much of a body that is not held is searched for the model.
	peekLimit = 64 << 10

	// maxDecoded is how much of a compressed body is decoded to be searched: the longest conversations fit, in which
	// the model's name may well come last, and a few bytes that blow up cost no more than this.
	maxDecoded = 4 << 20

	maxPartHeader = 4 << 10 // of one field of a form
)

// look finds in the body what the path does not tell. A body that it cannot read goes upstream as it is, for any key.
func (in *inbound) look(strict bool) {
	body, coding := in.body.data, codingOf(in.Header)
	if coding != "" {
		// It stays compressed. To rename the model would take unpacking all of it, and sending it as the caller did
		// not, for what hardly any client does: providers that have another name for the model are passed over.
		in.sealed = true
		decoded, whole := decodeBeginning(coding, body)
		defer decoded.release()
		body = decoded.data
		in.unread = !whole // what was not read may ask for a background job
	}
	top := &in.top
	// `curl -d` sends JSON as a form that it is not; upstreams look no closer either.
	if isJSONType(in.Header) || bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		if in.glanced = !strict && !in.sealed && !in.final() && top.glance(body); !in.glanced {
			*top = peek(body)
		}
	} else if kind, params, err := mime.ParseMediaType(in.Header.Get("Content-Type")); err == nil && kind == "multipart/form-data" {
		*top, in.form = peekForm(body, params["boundary"]), true
	}
	in.model = top.model
	if !in.sealed {
		in.modelAt = top.modelAt
	}
}

// search returns what the body's top level says. Of a large body it is read whole only now, when something hangs on
// it: most requests are served before anything does, and it costs more than all the rest of them.
func (in *inbound) search() topLevel {
	in.once.Do(func() {
		if in.glanced && in.body != nil {
			in.top = peek(in.body.data)
		}
	})
	return in.top
}

// glanceSize is how much of either end of a large body is looked at for the model, between which the messages stand.
const glanceSize = 8 << 10

// glance looks for the model at the end and at the beginning of a large body. It reports false where it does not find
// it for certain.
func (t *topLevel) glance(b []byte) bool {
	if len(b) <= 2*glanceSize {
		return false
	}
	from := len(b) - glanceSize
	for tail := b[from:]; ; {
		at := bytes.LastIndex(tail, []byte(`"model"`))
		if at < 0 {
			break
		}
		// It is at the top level if the members from here on end the object that the body ends with.
		var found topLevel
		end := found.members(b, from+at)
		if b[from+at-1] != '\\' && end < len(b) && b[end] == '}' && skipSpace(b, end+1) == len(b) {
			*t = found
			return t.modelAt[1] > 0
		}
		tail = tail[:at]
	}
	*t = peek(b[:glanceSize])
	return t.modelAt[1] > 0
}

// decodeBeginning decodes a compressed body up to maxDecoded. What can be read before an error is returned, too.
func decodeBeginning(coding string, b []byte) (decoded *buffer, whole bool) {
	decoded = newBuffer(min(8*int64(len(b)), maxDecoded))
	r, err := newDecoder(coding, bytes.NewReader(b))
	if err != nil {
		return decoded, false
	}
	decoded.data, err = readUpTo(r, decoded.data, maxDecoded, -1)
	return decoded, err == nil && len(decoded.data) < maxDecoded
}

// topLevel is what is looked for at the top level of a JSON body.
type topLevel struct {
	model      string
	modelAt    [2]int
	stream     bool
	background bool
}

// peek finds them in one pass over the top level, which skips strings by their quotes: a search for one absent field
// with a general parser costs more than all the rest of a large request. Of a field that stands twice the last counts,
// as most parsers have it. A body that is not a JSON object gives nothing.
func peek(b []byte) topLevel {
	var top topLevel
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return top
	}
	top.members(b, i+1)
	return top
}

// members notes the members of an object from i on. It returns where the object ends, or where it stopped making sense.
func (t *topLevel) members(b []byte, i int) int {
	for {
		i = skipSpace(b, i)
		if i >= len(b) || b[i] != '"' {
			return i
		}
		keyEnd := skipString(b, i)
		key := b[i:keyEnd]
		if i = skipSpace(b, keyEnd); i >= len(b) || b[i] != ':' {
			return i
		}
		start := skipSpace(b, i+1)
		end := skipValue(b, start)
		if start >= end {
			return i
		}
		if i = skipSpace(b, end); i >= len(b) { // the value may go on in what is not held
			return i
		}
		t.note(key, b[start:end], start)
		if b[i] != ',' {
			return i
		}
		i++
	}
}

func (t *topLevel) note(key, value []byte, at int) {
	if bytes.IndexByte(key, '\\') >= 0 {
		key = []byte(strconv.Quote(gjson.ParseBytes(key).String()))
	}
	switch string(key) {
	case `"model"`:
		t.model, t.modelAt = "", [2]int{}
		if value[0] == '"' {
			t.model, t.modelAt = gjson.ParseBytes(value).String(), [2]int{at, at + len(value)}
		}
	case `"stream"`:
		t.stream = string(value) == "true"
	case `"background"`:
		t.background = string(value) == "true"
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i, or the end of b.
func skipString(b []byte, i int) int {
	for i++; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		end := i + n
		escapes := 0
		for b[end-1-escapes] == '\\' {
			escapes++
		}
		i = end + 1
		if escapes%2 == 0 {
			return i
		}
	}
	return len(b)
}

// skipValue returns the index after the value that begins at i. What is no value ends at i or wherever it stops making
// sense: the body goes upstream as it is in any case.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth <= 0 {
				return i + 1 + min(depth, 0) // a bracket too many belongs to what is outside
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// peekForm finds them among the fields of a form (RFC 7578). A field counts once the delimiter after it was seen; a
// form that breaks the rules before that gives nothing.
func peekForm(b []byte, boundary string) topLevel {
	var top topLevel
	if boundary == "" {
		return top
	}
	delimiter := []byte("\r\n--" + boundary)
	_, part, more := nextDelimiter(b, 0, delimiter)
	for more {
		header, value, ok := partHeader(b, part)
		switch {
		case !ok && len(b)-part < maxPartHeader: // what we have of the body ends here
			return top
		case !ok:
			return topLevel{}
		}
		var end int
		// An empty value has no line end of its own: the blank line's is the delimiter's.
		if end, part, more = nextDelimiter(b, value-2, delimiter); end < 0 {
			return top
		}
		name, ok := fieldName(header)
		if !ok {
			return topLevel{}
		}
		top.noteField(name, b[value:max(value, end)], value)
	}
	return top
}

func (t *topLevel) noteField(name string, value []byte, at int) {
	switch name {
	case "model":
		t.model, t.modelAt = "", [2]int{}
		if len(value) > 0 {
			t.model, t.modelAt = string(value), [2]int{at, at + len(value)}
		}
	case "stream":
		t.stream = strings.EqualFold(string(value), "true") || string(value) == "1"
	}
}

// nextDelimiter finds the next delimiter line at or after from: where it begins, with the line end before it, and where
// the part after it begins. More is false after the last part, end is -1 if there is none.
func nextDelimiter(b []byte, from int, delimiter []byte) (end, part int, more bool) {
	for at := from; ; {
		n := 0
		if at == 0 && bytes.HasPrefix(b, delimiter[2:]) {
			n = -2 // nothing stands before it
		} else if n = bytes.Index(b[at:], delimiter); n < 0 {
			return -1, 0, false
		}
		end = at + n
		after := end + len(delimiter)
		rest := b[after:]
		if bytes.HasPrefix(rest, []byte("--")) {
			return end, 0, false
		}
		padding := len(rest) - len(bytes.TrimLeft(rest, " \t"))
		if bytes.HasPrefix(rest[padding:], []byte("\r\n")) {
			return end, after + padding + 2, true
		}
		at = after // it is only the beginning of another line
	}
}

// partHeader returns the lines of the header of the part that begins at i, and where its value begins.
func partHeader(b []byte, i int) (header []byte, value int, ok bool) {
	b = b[:min(len(b), i+maxPartHeader)]
	if bytes.HasPrefix(b[i:], []byte("\r\n")) {
		return nil, i + 2, true
	}
	n := bytes.Index(b[i:], []byte("\r\n\r\n"))
	if n < 0 {
		return nil, 0, false
	}
	return b[i : i+n], i + n + 4, true
}

// fieldName returns the name of a form's field; it is empty for files and for what is encoded. It reports false for
// what is no header.
func fieldName(header []byte) (name string, ok bool) {
	for len(header) > 0 {
		var line []byte
		line, header, _ = bytes.Cut(header, []byte("\r\n"))
		key, value, found := bytes.Cut(line, []byte(":"))
		if !found || len(key) == 0 || key[0] == ' ' || key[0] == '\t' {
			return "", false
		}
		switch strings.ToLower(string(key)) {
		case "content-disposition":
			kind, params, err := mime.ParseMediaType(string(value))
			if _, file := params["filename"]; err == nil && kind == "form-data" && !file {
				name = params["name"]
			}
		case "content-transfer-encoding":
			switch strings.ToLower(string(bytes.TrimSpace(value))) {
			case "7bit", "8bit", "binary":
			default:
				return "", true
			}
		}
	}
	return name, true
}
