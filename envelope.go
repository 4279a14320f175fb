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

	"github.com/llmfailover/caddy-llm-failover/internal/hint"
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

	lower      string   // the message in lower case, its beginning and end, without the addresses of help pages
	plain      string   // the same without what it quotes
	tokens     []string // the words of that
	codeTokens []string // the words of the codes

	cloudflare bool // it is Cloudflare's own, in JSON
	cites      bool // it names a part of the request as what is wrong

	nodes int
}

// The bounds of what is read of one body.
const (
	maxNodes   = 500
	maxDepth   = 12
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
	s.prepare()
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

// member reads one member of an object that is, or stands around, an error. Members that are not named here, such as
// those that echo the request, are not looked into.
func (s *said) member(key string, v gjson.Result, depth int) {
	s.nodes++
	switch hint.PlainKey(key) {
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
	case "cloudflareerror":
		s.cloudflare = v.Type == gjson.True
	case "loc", "fieldviolations":
		s.cites = true
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
	at := strings.IndexByte(text, '{')
	if at > 0 && text[at-1] == '[' {
		at--
	}
	if at < 0 || depth > maxDepth {
		s.sentence(text)
		return
	}
	inner := text[at:]
	if end := strings.LastIndexAny(inner, "}]"); end > 1 {
		inner = inner[:end+1]
	}
	if strings.Contains(inner, `\n`) && !gjson.Valid(inner) {
		inner = unescaped.Replace(inner) // bytes as Python prints them
	}
	switch {
	case gjson.Valid(inner):
		s.sentence(text[:at])
		s.value(gjson.Parse(inner), depth+1)
	case strings.HasPrefix(inner, "{'"):
		s.sentence(text[:at])
		s.python(inner)
	default:
		s.sentence(text)
	}
}

// sentence adds to the message what it does not say yet.
func (s *said) sentence(text string) {
	text = strings.TrimSpace(text)
	if text == "" || strings.Contains(s.message, text) {
		return
	}
	if s.message != "" {
		text = s.message + ". \n" + text
	}
	s.message = text[:min(len(text), maxMessage)]
}

var unescaped = strings.NewReplacer(`\\n`, `\n`, `\n`, "\n", `\"`, `"`, `\\`, `\`)

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

// clip keeps the beginning and the end of a long message; relays put their own words there.
func clip(message string) string {
	const head, tail = 800, 300
	if len(message) <= head+tail {
		return message
	}
	return message[:head] + "\n" + message[len(message)-tail:]
}

// prepare makes the forms of the message that words are looked for in.
func (s *said) prepare() {
	lower := strings.ToLower(clip(s.message))
	if strings.Contains(lower, "’") {
		lower = strings.ReplaceAll(lower, "’", "'")
	}
	s.lower = withoutLinks(lower)
	s.plain = unquoted(s.lower)
	s.tokens = tokensOf(s.plain)
	s.codeTokens = codeTokens(s.codes)
}

func withoutLinks(text string) string {
	for {
		at := strings.Index(text, "http")
		if at < 0 {
			return text
		}
		link := text[at:]
		if !strings.HasPrefix(link, "http://") && !strings.HasPrefix(link, "https://") {
			// Not a link: look no further rather than do it right for a word that hardly occurs.
			return text
		}
		end := strings.IndexAny(link, " \n\t\"'`),")
		if end < 0 {
			end = len(link)
		}
		text = text[:at] + text[at+end:]
	}
}

// quotes are the marks that open and close a quotation.
var quotes = []struct{ open, closing string }{{`"`, `"`}, {"'", "'"}, {"`", "`"}, {"“", "”"}, {"「", "」"}}

// unquoted drops quotations of four words and more, unless it is the server that is quoted, and quoted identifiers:
// 'get_credit_balance' is the name of somebody's tool.
func unquoted(text string) string {
	var b strings.Builder
	for {
		at, open, closing := openQuote(text)
		if at < 0 {
			b.WriteString(text)
			return b.String()
		}
		before, after := text[:at], text[at+len(open):]
		b.WriteString(before)
		text = after
		end := closingAt(after, closing)
		// The apostrophe of "don't" opens nothing.
		if end < 0 || open == "'" && before != "" && isWordByte(before[len(before)-1]) {
			b.WriteString(open)
			continue
		}
		switch quoted := after[:end]; {
		case quotesItself(before):
			b.WriteString(open + quoted + closing)
		case strings.Count(quoted, " ") < 3 && !strings.Contains(quoted, "_"):
			b.WriteString(open + quoted + closing)
		default:
			b.WriteString(" x ") // a word still stands there
		}
		text = after[end+len(closing):]
	}
}

// openQuote finds the next mark that may open a quotation, and the mark that closes it.
func openQuote(text string) (at int, open, closing string) {
	for at := range len(text) {
		switch text[at] {
		case '"', '\'', '`', "“"[0], "「"[0]:
			for _, q := range quotes {
				if strings.HasPrefix(text[at:], q.open) {
					return at, q.open, q.closing
				}
			}
		}
	}
	return -1, "", ""
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

// quotesItself reports whether what is quoted after this text is the server's: a metric, or an inner error.
func quotesItself(before string) bool {
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
