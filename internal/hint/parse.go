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

package hint

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// epochStart is how many seconds make a number a point in time rather than a wait: 1e9 seconds are 31 years.
const epochStart = 1e9

// within returns a wait that can be meant, else 0.
func within(d time.Duration) time.Duration {
	if d <= 0 || d > Max {
		return 0
	}
	return d
}

func until(t, now time.Time) time.Duration { return within(t.Sub(now)) }

// decimal reads digits with at most one point; signs, exponents and names of numbers are junk here.
func decimal(s string) (float64, bool) {
	if s == "" || len(s) > 32 {
		return 0, false
	}
	points, digits := 0, 0
	for i := range len(s) {
		switch {
		case s[i] >= '0' && s[i] <= '9':
			digits++
		case s[i] == '.':
			points++
		default:
			return 0, false
		}
	}
	if points > 1 || digits == 0 {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}

func number(s string, unit time.Duration) time.Duration {
	f, ok := decimal(strings.TrimSpace(s))
	if !ok {
		return 0
	}
	return scaled(f, unit)
}

func scaled(f float64, unit time.Duration) time.Duration {
	d := f * float64(unit)
	if math.IsNaN(d) || d <= 0 || d > float64(Max) {
		return 0
	}
	return time.Duration(d)
}

// moment reads a value that is a wait in seconds, a duration with units, a point in time in epoch seconds or
// milliseconds, or an RFC 3339 time.
func moment(s string, now time.Time) time.Duration {
	if f, ok := decimal(s); ok {
		return epochOrSeconds(f, now)
	}
	if d, n := duration(s); n == len(s) && n > 0 {
		return d
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return until(t, now)
	}
	return 0
}

func epochOrSeconds(f float64, now time.Time) time.Duration {
	switch {
	case f >= 1e15:
		return 0
	case f >= 1e12:
		return until(time.UnixMilli(int64(f)), now)
	case f >= epochStart:
		return until(time.Unix(int64(f), 0), now)
	}
	return scaled(f, time.Second)
}

// units are the words for spans of time; a lone number before none of them means seconds.
var units = map[string]time.Duration{
	"ms": time.Millisecond, "msec": time.Millisecond, "msecs": time.Millisecond, "millisecond": time.Millisecond, "milliseconds": time.Millisecond,
	"毫秒": time.Millisecond, "us": time.Microsecond, "µs": time.Microsecond, "ns": time.Nanosecond,
	"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second, "秒": time.Second, "秒钟": time.Second,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute, "分": time.Minute, "分钟": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour, "小时": time.Hour, "个小时": time.Hour, "時間": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour, "天": 24 * time.Hour, "日": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
}

// duration reads a span of time at the beginning of a lower-case text: 7m12s, 1m26.4s, 20ms, "2 hours and 5
// minutes", 30秒. It returns how much of the text it took; 0 if there is none, or one without a unit.
func duration(s string) (time.Duration, int) {
	var sum float64
	taken := 0
	for i := 0; ; {
		start := i
		for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.' && i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '9') {
			i++
		}
		f, ok := decimal(s[start:i])
		if !ok {
			break
		}
		i += len(s[i:]) - len(strings.TrimLeft(s[i:], " "))
		unit, n := unitAt(s[i:])
		if n == 0 {
			break
		}
		i += n
		sum += f * float64(unit)
		taken = i
		rest := strings.TrimLeft(s[i:], " ")
		rest = strings.TrimPrefix(rest, ", ")
		rest = strings.TrimPrefix(rest, "and ")
		i = len(s) - len(rest)
	}
	if taken == 0 {
		return 0, 0
	}
	return scaled(sum, time.Nanosecond), taken
}

// clock reads a span of time as hours, minutes and seconds, 02:19:05, at the beginning of a text.
func clock(s string) (time.Duration, int) {
	const form = "00:00:00"
	if len(s) < len(form) || s[2] != ':' || s[5] != ':' {
		return 0, 0
	}
	hours, err1 := strconv.Atoi(s[:2])
	minutes, err2 := strconv.Atoi(s[3:5])
	secs, err3 := strconv.Atoi(s[6:8])
	if err1 != nil || err2 != nil || err3 != nil || hours < 0 || minutes < 0 || secs < 0 {
		return 0, 0
	}
	return within(time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute + time.Duration(secs)*time.Second), len(form)
}

// unitAt reads the unit at the beginning of a text.
func unitAt(s string) (time.Duration, int) {
	end := 0
	for end < len(s) && s[end] >= 'a' && s[end] <= 'z' {
		end++
	}
	if end > 0 {
		return units[s[:end]], endIf(units[s[:end]] > 0, end)
	}
	// Longest first: 分钟 before 分.
	for _, n := range []int{9, 6, 3, 2} {
		if n <= len(s) && s[0] >= 0x80 {
			if unit := units[s[:n]]; unit > 0 {
				return unit, n
			}
		}
	}
	return 0, 0
}

func endIf(ok bool, n int) int {
	if ok {
		return n
	}
	return 0
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
