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
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// form is what kind of thing an error body is. It is settled before any word of it is looked at.
type form uint8

const (
	formNone form = iota // nothing
	formJSON             // an error object, whatever it is wrapped in
	formHTML             // a page, whose words mean nothing
	formText             // a short plain text
)

// said is what an error body says, taken apart by role.
type said struct {
	form    form
	codes   []string // codes, types, status words and reasons, as sent
	status  int      // an HTTP status that the body repeats; 0 if none
	param   string
	finish  []string // finish, stop and block reasons
	message string   // all sentences

	// Google's quota failures.
	quotas     []string // ids and metrics of the quotas that ran out
	quotaModel bool     // a quota counts one model
	quotaZero  bool     // a quota allows nothing at all
	delay      bool     // it says when to come back

	// Resellers that wrap an error of whom they bought from.
	reseller bool // it is the reseller's own credentials that were used there

	nodes int
}

// The bounds of what is read of one body.
const (
	maxNodes   = 500
	maxDepth   = 7
	maxMessage = 4 << 10
	maxCode    = 120
	maxCodes   = 40
)

// hear takes an error body apart.
func hear(header http.Header, body []byte) *said {
	s := &said{}
	if kind := header.Get("X-Amzn-Errortype"); kind != "" {
		// ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/
		kind, _, _ = strings.Cut(kind, ":")
		s.code(kind)
	}
	s.body(header, bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))), 0)
	return s
}

func (s *said) body(header http.Header, body []byte, depth int) {
	if len(body) == 0 || depth > maxDepth {
		return
	}
	switch c := body[0]; {
	case c == '{' || c == '[' || c == '"':
		s.form = formJSON
		s.value(gjson.ParseBytes(body), depth)
		if c == '"' && len(s.codes) == 0 {
			s.form = formText
		}
	case isEventStream(body):
		s.events(header, body, depth)
	case c == '<' || strings.HasPrefix(header.Get("Content-Type"), "text/html"):
		s.markup(body)
	default:
		s.form = formText
		s.text(string(body[:min(len(body), maxMessage)]), depth)
	}
}

// isEventStream: some servers frame an error like the stream that was asked for, even under a 4xx; llama.cpp calls
// the field `error`.
func isEventStream(body []byte) bool {
	field, _, found := bytes.Cut(body[:min(len(body), 16)], []byte(":"))
	if !found {
		return false
	}
	switch string(field) {
	case "data", "event", "id", "retry", "":
		return true
	case "error":
		rest := bytes.TrimLeft(body[len("error:"):], " ")
		return len(rest) > 0 && rest[0] == '{'
	}
	return false
}

func (s *said) events(header http.Header, body []byte, depth int) {
	events := 0
	for line := range bytes.Lines(body) {
		field, data, _ := bytes.Cut(line, []byte(":"))
		if name := string(field); name != "data" && name != "error" {
			continue
		}
		if data = bytes.TrimSpace(data); len(data) > 0 && string(data) != "[DONE]" {
			s.body(header, data, depth+1)
		}
		if events++; events == 16 {
			return
		}
	}
}

// markup reads a page, which has no words for us, or an XML error, which has two fields.
func (s *said) markup(body []byte) {
	s.form = formHTML
	if head := body[:min(len(body), 512)]; !bytes.HasPrefix(head, []byte("<?xml")) && !bytes.HasPrefix(head, []byte("<Error")) ||
		bytes.Contains(head, []byte("<html")) {
		return
	}
	s.form = formJSON
	inner := func(tag string) string {
		_, rest, _ := bytes.Cut(body, []byte("<"+tag+">"))
		text, _, found := bytes.Cut(rest, []byte("</"+tag+">"))
		if !found {
			return ""
		}
		return string(text)
	}
	s.code(inner("Code"))
	s.text(inner("Message"), maxDepth)
}

func (s *said) value(v gjson.Result, depth int) {
	if s.nodes++; depth > maxDepth || s.nodes > maxNodes {
		return
	}
	switch {
	case v.IsObject():
		v.ForEach(func(key, value gjson.Result) bool {
			s.member(key.Str, value, depth)
			return s.nodes <= maxNodes
		})
	case v.IsArray():
		v.ForEach(func(_, value gjson.Result) bool {
			s.value(value, depth+1)
			return s.nodes <= maxNodes
		})
	case v.Type == gjson.String:
		s.text(v.Str, depth)
	}
}

// plainKey makes error_code, errorCode, Error-Code and :exception-type the names of one member.
func plainKey(key string) string {
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

// member reads one member of an object that is, or stands around, an error. Members that are not named here, such as
// those that echo the request, are not looked into.
func (s *said) member(key string, v gjson.Result, depth int) {
	s.nodes++
	switch plainKey(key) {
	case "code", "type", "status", "errorcode", "errortype", "errcode", "statuscode", "httpcode", "httpstatus",
		"exceptiontype", "reason", "errorname", "errorenum", "limitname":
		switch v.Type {
		case gjson.Number:
			s.number(v.Num)
		case gjson.String:
			if key == "reason" && strings.Count(v.Str, " ") > 2 {
				s.text(v.Str, depth+1)
			} else {
				s.code(v.Str)
			}
		case gjson.JSON:
			s.value(v, depth+1)
		}
	case "message", "msg", "error", "errormsg", "errormessage", "errmsg", "statusmsg", "errordescription", "description",
		"detail", "title", "raw", "faultstring", "errors", "details", "metadata", "innererror", "response", "baseresp",
		"header", "payload", "violations", "fault", "cause", "extra", "incompletedetails", "result", "body":
		s.value(v, depth+1)
	case "choices", "candidates", "delta", "promptfeedback":
		s.value(v, depth+1)
	case "finishreason", "stopreason", "blockreason":
		if v.Type == gjson.String && len(v.Str) <= maxCode {
			s.finish = append(s.finish, v.Str)
		}
	case "param":
		s.param = v.String()
	case "quotaid", "quotametric", "quotalimit":
		if v.Type == gjson.String && len(s.quotas) < maxCodes {
			s.quotas = append(s.quotas, strings.ToLower(v.Str))
		}
	case "quotavalue", "quotalimitvalue":
		s.quotaZero = s.quotaZero || v.String() == "0"
	case "quotadimensions":
		s.quotaModel = s.quotaModel || v.Get("model").Exists()
	case "retrydelay", "quotaresetdelay":
		s.delay = true
	case "providername":
		s.reseller = s.reseller || v.Str != ""
	case "isbyok":
		// The caller's own key at the upstream: then it is our own business after all. (The provider's name stands
		// before this member.)
		if v.Type == gjson.True {
			s.reseller = false
		}
	}
}

// number files a number under the statuses or the codes.
func (s *said) number(n float64) {
	switch {
	case n >= 400 && n < 600:
		if s.status == 0 {
			s.status = int(n)
		}
	case n == 0 || n == 200:
	default:
		s.code(strconv.FormatFloat(n, 'f', -1, 64))
	}
}

func (s *said) code(code string) {
	// AWS: com.amazonaws.bedrock#ThrottlingException
	if i := strings.LastIndexByte(code, '#'); i >= 0 {
		code = code[i+1:]
	}
	code = strings.TrimSpace(code)
	switch code {
	case "", "error", "null", "none", "failed", "response.failed", "exception", "0", "200":
		return
	}
	if len(code) > maxCode || len(s.codes) >= maxCodes || strings.HasPrefix(code, "http") {
		return
	}
	if len(code) == 3 {
		if n, err := strconv.Atoi(code); err == nil && n >= 400 && n < 600 {
			s.number(float64(n))
			return
		}
	}
	if !slices.Contains(s.codes, code) {
		s.codes = append(s.codes, code)
	}
}

// text reads a sentence, or JSON that someone put into a string, with or without a sentence before it.
func (s *said) text(text string, depth int) {
	text = strings.TrimSpace(text)
	if at := strings.IndexAny(text, "{["); at >= 0 && depth <= maxDepth {
		inner := text[at:]
		if end := strings.LastIndexAny(inner, "}]"); end > 1 {
			inner = inner[:end+1]
			switch {
			case inner[0] == '{' && gjson.Valid(inner), inner[0] == '[' && len(inner) > 2 && inner[1] == '{' && gjson.Valid(inner):
				s.value(gjson.Parse(inner), depth+1)
				text = strings.TrimSpace(text[:at])
			case strings.HasPrefix(inner, "{'"):
				s.python(inner)
				text = strings.TrimSpace(text[:at])
			}
		}
	}
	if text == "" || strings.Contains(s.message, text) {
		return
	}
	if s.message != "" {
		text = s.message + ". \n" + text
	}
	s.message = text[:min(len(text), maxMessage)]
}

var (
	pythonMessage = regexp.MustCompile(`'(?:message|msg|detail|error)': ?(?:'([^']{1,1000})'|"([^"]{1,1000})")`)
	pythonCode    = regexp.MustCompile(`'(?:code|type|status)': ?'?([\w.-]{1,80})`)
)

// python reads a dict as Python prints it, which relays in that language put into their own message.
func (s *said) python(dict string) {
	dict = dict[:min(len(dict), maxMessage)]
	for _, m := range pythonCode.FindAllStringSubmatch(dict, 8) {
		if m[1] != "None" {
			s.code(m[1])
		}
	}
	for _, m := range pythonMessage.FindAllStringSubmatch(dict, 4) {
		s.text(m[1]+m[2], maxDepth+1)
	}
}

// plain returns the message in lower case and without what it quotes at length, which may be the caller's own text.
func (s *said) plain() string {
	lower := strings.ToLower(s.message)
	if strings.Contains(lower, "’") {
		lower = strings.ReplaceAll(lower, "’", "'")
	}
	return unquoted(lower)
}

// unquoted drops quotations of four words and more, unless it is a name that is quoted.
func unquoted(text string) string {
	if !strings.ContainsAny(text, "\"'`“「") {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for text != "" {
		open := strings.IndexAny(text, "\"'`“「")
		if open < 0 {
			break
		}
		mark, after := text[open:open+1], text[open+1:]
		closing := mark
		switch {
		case strings.HasPrefix(text[open:], "“"):
			mark, closing, after = "“", "”", text[open+len("“"):]
		case strings.HasPrefix(text[open:], "「"):
			mark, closing, after = "「", "」", text[open+len("「"):]
		case text[open] != '"' && text[open] != '\'' && text[open] != '`':
			// Another character that begins with the same byte cannot be met here: IndexAny compares whole runes.
		}
		// The apostrophe of "don't" opens nothing.
		if mark == "'" && open > 0 && isWordByte(text[open-1]) {
			b.WriteString(text[:open+1])
			text = after
			continue
		}
		end := closingAt(after, closing)
		if end < 0 {
			b.WriteString(text[:open+len(mark)])
			text = after
			continue
		}
		b.WriteString(text[:open])
		if quoted := after[:end]; strings.Count(quoted, " ") < 3 || quotesOwnWords(text[:open]) {
			b.WriteString(mark + quoted + closing)
		} else {
			b.WriteByte(' ')
		}
		text = after[end+len(closing):]
	}
	b.WriteString(text)
	return b.String()
}

// closingAt finds the end of a quotation; an apostrophe inside a word is none.
func closingAt(text, mark string) int {
	for from := 0; ; {
		i := strings.Index(text[from:], mark)
		if i < 0 {
			return -1
		}
		i += from
		if mark != "'" || i+1 >= len(text) || !isWordByte(text[i+1]) {
			return i
		}
		from = i + 1
	}
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// quotesOwnWords reports whether what is quoted after this text is the server's: a metric, or an inner error.
func quotesOwnWords(before string) bool {
	before = strings.TrimRight(before, " :='\"")
	for _, label := range []string{"metric", "limit", "message", "error", "reason", "detail", "msg", "exception"} {
		if strings.HasSuffix(before, label) {
			return true
		}
	}
	return false
}

// citesContent reports whether the message points into the caller's own content, as in `messages[0].content` or
// `messages.3.content.1`: whatever words follow may be the caller's.
func citesContent(lower string) bool {
	for _, name := range []string{"messages", "contents", "input", "prompt", "tools"} {
		for rest := lower; ; {
			_, after, found := strings.Cut(rest, name)
			if !found {
				break
			}
			if len(after) > 1 && (after[0] == '[' || after[0] == '.') && after[1] >= '0' && after[1] <= '9' {
				return true
			}
			rest = after
		}
	}
	return false
}
