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

import "bytes"

// maxDepth is how deep a value may be nested; nobody's answers come near it.
const maxDepth = 1000

type fault uint8

const (
	sound  fault = iota
	cut          // the text ends too early
	broken       // it is not JSON
)

// reader walks through a JSON text once, from its beginning to its end, and allocates nothing. It is lenient about
// commas and which bracket closes, but always knows whether the text is complete. Keys are compared as they are
// written: nobody escapes letters in them. After a fault it stands at the end, so that every loop over it ends.
type reader struct {
	b     []byte
	i     int
	fault fault
}

// peek skips white space and returns the byte that the next token begins with, or 0 at the end.
func (r *reader) peek() byte {
	for ; r.i < len(r.b); r.i++ {
		switch c := r.b[r.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// ended reports whether all was read and nothing was wrong.
func (r *reader) ended() bool { return r.fault == sound && r.peek() == 0 && r.i == len(r.b) }

func (r *reader) fail() {
	if r.fault == sound {
		r.fault = cut
		if r.i < len(r.b) {
			r.fault = broken
		}
	}
	r.i = len(r.b)
}

// enter steps into the next value if it begins with open, { or [; else it skips it.
func (r *reader) enter(open byte) bool {
	if r.peek() != open {
		r.skip()
		return false
	}
	r.i++
	return true
}

// member returns the next key of the object just entered, and stops before its value; false at the object's end.
func (r *reader) member() (key []byte, ok bool) {
	c := r.peek()
	if c == ',' {
		r.i++
		c = r.peek()
	}
	switch c {
	case '}':
		r.i++
		return nil, false
	case '"':
		key = r.str()
		if r.peek() == ':' {
			r.i++
			return key, true
		}
	}
	r.fail()
	return nil, false
}

// element stops before the next element of the array just entered; false at the array's end.
func (r *reader) element() bool {
	c := r.peek()
	if c == ',' {
		r.i++
		c = r.peek()
	}
	switch c {
	case ']':
		r.i++
		return false
	case 0:
		r.fail()
		return false
	}
	return true
}

// skip goes past the next value and returns it as it is written.
func (r *reader) skip() []byte {
	r.peek()
	start, depth := r.i, 0
	for {
		switch c := r.peek(); c {
		case '"':
			r.str()
		case '{', '[':
			if depth++; depth > maxDepth {
				r.fail()
				return nil
			}
			r.i++
		case '}', ']':
			if depth--; depth < 0 {
				r.fail()
				return nil
			}
			r.i++
		case ',', ':':
			if depth == 0 {
				r.fail()
				return nil
			}
			r.i++
			continue
		default:
			from := r.i
			for r.i < len(r.b) && isScalar(r.b[r.i]) {
				r.i++
			}
			if r.i == from {
				r.fail()
			}
		}
		if r.fault != sound {
			return nil
		}
		if depth == 0 {
			return r.b[start:r.i]
		}
	}
}

// str goes past the string that begins here and returns what is between its quotes, still escaped.
func (r *reader) str() []byte {
	start := r.i + 1
	end := closingQuote(r.b, start)
	if end < 0 {
		r.i = len(r.b)
		r.fail()
		return nil
	}
	r.i = end + 1
	return r.b[start:end]
}

// closingQuote returns the index of the quote that ends the string which began before i, or -1.
func closingQuote(b []byte, i int) int {
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		quote := i + n
		slashes := quote
		for slashes > i && b[slashes-1] == '\\' {
			slashes--
		}
		if (quote-slashes)%2 == 0 {
			return quote
		}
		i = quote + 1
	}
}

// isScalar reports whether c may be part of a number, true, false or null.
func isScalar(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '.' || c == '+'
}

// filled reports whether a value, as skip returned it, holds anything: null, false, 0, "", {} and [] do not.
func filled(v []byte) bool {
	if len(v) == 0 {
		return false
	}
	switch v[0] {
	case '"':
		return len(v) > 2
	case '{', '[':
		inner := reader{b: v[:len(v)-1], i: 1}
		return inner.peek() != 0
	case 'n', 'f':
		return false
	}
	return string(v) != "0"
}

// text returns what is between the quotes of a string value, or nothing for other values.
func text(v []byte) []byte {
	if len(v) > 2 && v[0] == '"' {
		return v[1 : len(v)-1]
	}
	return nil
}

// anyFilled reads the next value and reports whether it is an object in which a member other than the named ones is
// filled.
func (r *reader) anyFilled(but ...string) bool {
	found := false
	if !r.enter('{') {
		return false
	}
	for key, ok := r.member(); ok; key, ok = r.member() {
		v := r.skip()
		found = found || filled(v) && !among(key, but)
	}
	return found
}

func among(v []byte, words []string) bool {
	for _, w := range words {
		if string(v) == w {
			return true
		}
	}
	return false
}
