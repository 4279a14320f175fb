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

package headroom

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// reset reads a point in time or the time until it: seconds, epoch seconds or milliseconds, Go's durations, RFC 3339.
// Which one it is shows in the value, for no limit lasts a billion seconds. It returns the zero time for all else,
// and for what has passed.
func (r *reader) reset(s string) time.Time {
	if s == "" {
		return time.Time{}
	}
	if f, ok := decimal(s); ok {
		switch {
		case f >= 1e14:
			return time.Time{}
		case f >= 1e12:
			return r.at(time.UnixMilli(int64(f)))
		case f >= 1e9:
			return r.at(time.Unix(int64(f), 0))
		}
		return r.after(f)
	}
	if s[0] < '0' || s[0] > '9' || len(s) > maxValue {
		return time.Time{}
	}
	switch s[len(s)-1] {
	case 's', 'm', 'h':
		if d, err := time.ParseDuration(s); err == nil {
			return r.in(d)
		}
		return time.Time{}
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return r.at(t)
	}
	return time.Time{}
}

func (r *reader) in(d time.Duration) time.Time {
	if d <= 0 || d > Longest {
		return time.Time{}
	}
	return r.now.Add(d)
}

func (r *reader) after(seconds float64) time.Time {
	if seconds > Longest.Seconds() {
		return time.Time{}
	}
	return r.in(time.Duration(seconds * float64(time.Second)))
}

func (r *reader) at(t time.Time) time.Time {
	if r.upstream.IsZero() {
		r.upstream = r.now
		if date, err := http.ParseTime(r.value("Date")); err == nil {
			r.upstream = date
		}
	}
	return r.in(t.Sub(r.upstream))
}

const maxValue = 40

// count reads a whole number. Negative ones are Azure's for "no limit" and others' for "too many".
func count(s string) (int64, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	n := int64(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

// decimal reads digits with at most one point among them; signs, exponents and names of numbers are junk here.
func decimal(s string) (float64, bool) {
	if s == "" || len(s) > maxValue || s[0] == '.' {
		return 0, false
	}
	points := 0
	for i := range len(s) {
		switch {
		case s[i] == '.':
			points++
		case s[i] < '0' || s[i] > '9':
			return 0, false
		}
	}
	if points > 1 {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}

// first returns the limit before its policy: 100, 100;w=60.
func first(s string) string {
	if i := strings.IndexAny(s, ",;"); i >= 0 {
		return s[:i]
	}
	return s
}

// cutItem cuts a structured field at its first comma or semicolon outside of a string.
func cutItem(s string) (part string, sep byte, rest string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && (c == ',' || c == ';'):
			return s[:i], c, s[i+1:]
		}
	}
	return s, 0, ""
}
