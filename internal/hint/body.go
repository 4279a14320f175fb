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
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// reader looks for hints in a body: members whose names say so, at any depth that errors have, and sentences.
type reader struct {
	now      time.Time
	member   Hint // a member names a wait
	moment   Hint // a member names a point in time
	sentence Hint // said in a sentence
	dayQuota bool // a quota that lasts a day is named
	nodes    int
	read     int // bytes of sentences
}

const (
	maxNodes    = 500
	maxDepth    = 8
	maxSentence = 2 << 10
	maxRead     = 8 << 10
)

// fromBody returns the hint of a body, and whether it names a quota of a day. A member is exact, so it wins over a
// sentence, and a wait needs no clock, so it wins over a point in time.
func fromBody(body []byte, now time.Time) (Hint, bool) {
	r := &reader{now: now}
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] == '<' {
		return Hint{}, false
	}
	r.text(body)
	for _, hint := range []Hint{r.member, r.moment} {
		if hint.Wait > 0 {
			return hint, r.dayQuota
		}
	}
	return r.sentence, r.dayQuota
}

// text reads JSON, an event stream with JSON in it, or a plain text.
func (r *reader) text(body []byte) {
	switch body[0] {
	case '{', '[', '"':
		r.value("", gjson.ParseBytes(body), 0)
		return
	}
	if at := bytes.IndexByte(body[:min(len(body), 256)], '{'); at >= 0 && bytes.IndexByte(body[:at], ':') >= 0 {
		for line := range bytes.Lines(body) {
			field, data, _ := bytes.Cut(line, []byte(":"))
			if data = bytes.TrimSpace(data); (string(field) == "data" || string(field) == "error") && len(data) > 0 && r.nodes < maxNodes {
				r.value("", gjson.ParseBytes(data), 0)
			}
		}
		if r.nodes > 0 {
			return
		}
	}
	r.look(string(body[:min(len(body), maxSentence)]))
}

func (r *reader) value(key string, v gjson.Result, depth int) {
	if r.nodes++; depth > maxDepth || r.nodes > maxNodes {
		return
	}
	switch v.Type {
	case gjson.JSON:
		isArray := v.IsArray()
		v.ForEach(func(k, v gjson.Result) bool {
			name := key
			if !isArray {
				name = PlainKey(k.Str)
				if echoes[name] {
					return true
				}
			}
			r.value(name, v, depth+1)
			return r.nodes <= maxNodes
		})
	case gjson.Number, gjson.String:
		r.scalar(key, v, depth)
	}
}

// echoes are members that hold the caller's own content or the model's, never a hint.
var echoes = map[string]bool{
	"input": true, "messages": true, "choices": true, "content": true, "failedgeneration": true, "flaggedinput": true, "output": true, "request": true,
	"candidates": true, "prompt": true,
}

func (r *reader) scalar(key string, v gjson.Result, depth int) {
	switch key {
	case "retryafterms", "retryaftermilliseconds", "waitms", "retryinms":
		r.found(scaled(v.Float(), time.Millisecond), v)
	case "retryafter", "xretryafter":
		r.found(retryAfter(v.String(), r.now), v)
	case "retryafterseconds", "retryaftersecondsraw", "retryaftersecs", "resetsinseconds", "resetinseconds", "retryinseconds", "estimatedtime", "waitseconds",
		"resetafterseconds", "secondsuntilreset", "resetseconds", "retrydelay", "quotaresetdelay", "retryin", "resetafter", "resetin", "resetsin":
		r.found(moment(strings.TrimSpace(strings.ToLower(v.String())), r.now), v)
	case "resetsat", "resetat", "resettime", "resettimestamp", "quotaresettimestamp", "xratelimitreset", "ratelimitreset", "nextresettime", "availableat", "retryat":
		d := moment(v.String(), r.now)
		if stamp := absolute.FindStringSubmatch(v.String()); d == 0 && stamp != nil {
			d = r.stamp(stamp)
		}
		r.moment = r.moment.longer(Hint{d, clip(v.String())})
	case "quotaid", "quotalimit", "quotametric":
		name := strings.ReplaceAll(strings.ToLower(v.Str), "_", "")
		r.dayQuota = r.dayQuota || strings.Contains(name, "perday") || strings.Contains(name, "daily")
	default:
		if v.Type != gjson.String || len(v.Str) < 6 {
			return
		}
		// JSON in a string, as relays wrap it.
		if s := strings.TrimSpace(v.Str); len(s) > 2 && (s[0] == '{' || s[0] == '[') && gjson.Valid(s) {
			r.value("", gjson.Parse(s), depth+1)
			return
		}
		r.look(v.Str[:min(len(v.Str), maxSentence)])
	}
}

func (r *reader) found(d time.Duration, v gjson.Result) {
	r.member = r.member.longer(Hint{d, clip(v.String())})
}

// PlainKey makes retry_after, retryAfter, Retry-After and :retry-after the names of one member.
func PlainKey(key string) string {
	var buf [32]byte
	n := 0
	for i := 0; i < len(key) && n < len(buf); i++ {
		switch c := key[i]; {
		case c >= 'A' && c <= 'Z':
			buf[n] = c + 'a' - 'A'
			n++
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			buf[n] = c
			n++
		}
	}
	return string(buf[:n])
}

// triggers are the words before a span of time that make it a wait, longest first where one contains another.
var triggers = []string{
	"try again in", "try again after", "retry in", "retry after", "retry your request in", "retry your request after", "retrying in", "retry the request after", "retry the request in",
	"wait for", "wait at least", "wait about", "wait another", "wait", "reset in", "resets in", "reset after", "resets after", "available in", "available again in",
	"back in", "again in", "again after", "refresh in", "refreshes in", "replenished in", "renewed in", "cooldown of", "cooling down for",
	"请在", "请等待", "等待", "重试：", "将在",
}

// absolute is a date and a time of day, and perhaps a zone.
var absolute = regexp.MustCompile(`(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:[Tt ]| at )(\d{1,2}):(\d{2})(?::(\d{2}))?(?:\.\d+)?\s*(z\b|Z\b|utc|UTC|gmt|GMT|[+-]\d{2}:?\d{2})?`)

// Words that make a point in time the end of a wait.
var resetWords = []string{"reset", "again", "retry", "until", "available", "regain", "refresh", "renew", "restore", "resume", "重置", "恢复", "刷新", "重试"}

// look looks for a hint in a sentence.
func (r *reader) look(sentence string) {
	if r.read += len(sentence); r.read > maxRead || !strings.ContainsAny(sentence, "0123456789") {
		return
	}
	lower := strings.ToLower(sentence)
	// "usage limit reached|1760000400": Claude's clients and their relays write the moment so.
	if _, after, found := strings.Cut(lower, "limit reached|"); found {
		digits := after[:len(after)-len(strings.TrimLeft(after, "0123456789"))]
		if seconds, ok := decimal(digits); ok && seconds >= epochStart {
			r.sentence = r.sentence.longer(Hint{epochOrSeconds(seconds, r.now), digits})
		}
	}
	for _, trigger := range triggers {
		for rest := lower; ; {
			_, after, found := strings.Cut(rest, trigger)
			if !found {
				break
			}
			rest = after
			if d, raw := span(after); d > 0 {
				r.sentence = r.sentence.longer(Hint{d, clip(trigger + raw)})
			}
		}
	}
	if r.sentence.Wait > 0 {
		return
	}
	for _, w := range resetWords {
		if strings.Contains(lower, w) {
			if m := absolute.FindStringSubmatch(sentence); m != nil {
				r.sentence = Hint{r.stamp(m), clip(m[0])}
			}
			return
		}
	}
}

// span reads the span of time that follows a trigger, after small words.
func span(after string) (time.Duration, string) {
	rest := strings.TrimLeft(after, " :：")
	for _, filler := range []string{"about ", "approximately ", "another ", "at least ", "around ", "for ", "~", "≈", "another ", "up to ", "the next "} {
		rest = strings.TrimLeft(strings.TrimPrefix(rest, filler), " ")
	}
	if rest == "" || rest[0] < '0' || rest[0] > '9' {
		return 0, ""
	}
	if d, n := clock(rest); n > 0 {
		return d, after[:len(after)-len(rest)+n]
	}
	if d, n := duration(rest); n > 0 {
		return d, after[:len(after)-len(rest)+n]
	}
	// A lone number, in seconds; not the beginning of a date or of a list.
	end := 0
	for end < len(rest) && (rest[end] >= '0' && rest[end] <= '9') {
		end++
	}
	if tail := rest[end:]; tail == "" || tail == "." || strings.HasPrefix(tail, ". ") {
		if n, err := strconv.ParseInt(rest[:end], 10, 64); err == nil && n < 1e9 {
			return scaled(float64(n), time.Second), after[:len(after)-len(rest)+end]
		}
	}
	return 0, ""
}

// beijing is the zone of stamps that name none: the vendors who write such stamps are there. A guess that is wrong
// by hours is harmless, since a hint is capped.
var beijing = time.FixedZone("+0800", 8*60*60)

func (r *reader) stamp(m []string) time.Duration {
	part := func(i int) int { n, _ := strconv.Atoi(m[i]); return n }
	zone := beijing
	switch name := strings.ToUpper(m[7]); {
	case name == "Z", name == "UTC", name == "GMT":
		zone = time.UTC
	case name != "":
		digits := strings.ReplaceAll(name[1:], ":", "")
		n, _ := strconv.Atoi(digits)
		offset := (n/100*60 + n%100) * 60
		if name[0] == '-' {
			offset = -offset
		}
		zone = time.FixedZone("", offset)
	}
	return until(time.Date(part(1), time.Month(part(2)), part(3), part(4), part(5), part(6), 0, zone), r.now)
}
