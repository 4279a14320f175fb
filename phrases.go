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
	"strings"
	"unicode"
)

// A phrase is a sequence of words that must occur in one sentence, written as
//
//	insufficient .. balance|credit*
//
// where `|` separates alternatives, `*` stands for any rest of the word, `#` for any number, `..` for up to five
// words in between, and `...` for up to fourteen. The words of a text are its runs of letters and digits in lower
// case, so that `rate_limit`, `rate-limit` and `Rate limit` are the same.
//
// This is a small language of its own because it is read more easily than regular expressions, and because a
// table of many hundred phrases is searched in one pass: a failure is judged in microseconds.
type phrase struct {
	row   int
	first []word // those of its first word's alternatives that are looked up where it stands
	rest  []part
}

// part is one word of a phrase, and how many other words may stand before it.
type part struct {
	gap   int
	words []word
}

type word struct {
	text   string
	prefix bool // any word that begins with text
	number bool // any word that begins with a digit
}

func (w *word) fits(token string) bool {
	switch {
	case w.number:
		return token[0] >= '0' && token[0] <= '9'
	case w.prefix:
		return strings.HasPrefix(token, w.text)
	}
	return token == w.text
}

func anyFits(words []word, token string) bool {
	for i := range words {
		if words[i].fits(token) {
			return true
		}
	}
	return false
}

// endOfSentence is the token that no phrase reaches across.
const endOfSentence = "."

// phraseTable finds the first of its rows of which a phrase occurs in a text.
type phraseTable struct {
	byStart [starts][]phrase // by the beginning of the phrase's first word
	other   [][]string       // a row's bare substrings, for scripts that put no spaces between words
}

// start is a number for the beginning of a word: its first startLen letters, or any digit. Beginnings may share one.
type start uint32

// starts is how many there are.
const starts = 1 << 9

// startLen is how much of a phrase's first word is looked up: every first word must have as many letters, or be
// written without a `*`.
const startLen = 3

func startOf(token string) start {
	if token[0] <= '9' {
		return 0
	}
	s := start(0)
	for i := range min(startLen, len(token)) {
		s = s*31 + start(token[i])
	}
	return s % starts
}

// add appends a row: phrases, one a line, and substrings, separated by spaces.
func (t *phraseTable) add(phrases, substrings string) {
	row := len(t.other)
	t.other = append(t.other, strings.Fields(substrings))
	for line := range strings.Lines(phrases) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		parts := parsePhrase(line)
		byStart := make(map[start][]word)
		for _, w := range parts[0].words {
			if w.prefix && len(w.text) < startLen {
				panic("too short a beginning: " + line)
			}
			key := start(0)
			if !w.number {
				key = startOf(w.text)
			}
			byStart[key] = append(byStart[key], w)
		}
		for key, words := range byStart {
			t.byStart[key] = append(t.byStart[key], phrase{row, words, parts[1:]})
		}
	}
}

func parsePhrase(line string) []part {
	var parts []part
	gap := 0
	for field := range strings.FieldsSeq(line) {
		switch field {
		case "..":
			gap = 5
			continue
		case "...":
			gap = 14
			continue
		}
		p := part{gap: gap}
		gap = 0
		for alternative := range strings.SplitSeq(field, "|") {
			text, prefix := strings.CutSuffix(alternative, "*")
			p.words = append(p.words, word{text: text, prefix: prefix, number: text == "#"})
		}
		parts = append(parts, p)
	}
	return parts
}

// find returns the first row that occurs in the tokens, or among rows without spaces in the text, and may speak;
// -1 if none does.
func (t *phraseTable) find(tokens []string, text string, may func(row int) bool) int {
	best := len(t.other)
	for i, token := range tokens {
		here := t.byStart[startOf(token)]
		for n := range here {
			if p := &here[n]; p.row < best && anyFits(p.first, token) && p.followed(tokens[i+1:]) && (may == nil || may(p.row)) {
				best = p.row
			}
		}
	}
	if !isASCII(text) {
		for row, substrings := range t.other[:best] {
			for _, s := range substrings {
				if strings.Contains(text, s) && (may == nil || may(row)) {
					return row
				}
			}
		}
	}
	if best == len(t.other) {
		return -1
	}
	return best
}

// followed reports whether the rest of the phrase is found in the tokens that follow its first word. Each word is
// looked for no further than its nearest occurrence, which keeps the search linear.
func (p *phrase) followed(tokens []string) bool {
	i := 0
	for n := range p.rest {
		part := &p.rest[n]
		last := i + part.gap
		for {
			if i >= len(tokens) {
				return false
			}
			if anyFits(part.words, tokens[i]) {
				break
			}
			if part.gap > 0 && strings.ContainsAny(tokens[i], "0123456789") {
				last++
			}
			if i++; i > last || tokens[i-1] == endOfSentence {
				return false
			}
		}
		i++
	}
	return true
}

// maxWords bounds how many words of a text are looked at.
const maxWords = 300

// isLetter tells the bytes that words are made of.
var isLetter = func() (is [256]bool) {
	for c := range is {
		is[c] = c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
	}
	return is
}()

// tokensOf splits a lower-case text into words.
func tokensOf(lower string) []string {
	tokens := make([]string, 0, min(maxWords, len(lower)/4)+4)
	for i := 0; i < len(lower) && len(tokens) < maxWords; i++ {
		if begin := i; isLetter[lower[i]] {
			for i < len(lower) && (isLetter[lower[i]] || lower[i] == '\'') {
				i++
			}
			token := lower[begin:i]
			if token[len(token)-1] == '\'' {
				token = strings.TrimRight(token, "'")
			}
			if tokens = append(tokens, token); i == len(lower) {
				break
			}
		}
		switch lower[i] {
		case '.', '!', '?', ';':
			if i+1 == len(lower) || lower[i+1] <= ' ' {
				tokens = append(tokens, endOfSentence)
			}
		case '\n':
			tokens = append(tokens, endOfSentence)
		}
	}
	return tokens
}

// codeTokens splits codes, types and status words into words: `RateLimitExceeded.EndpointTPM` is four and two. No
// phrase reaches from one code to the next.
func codeTokens(codes []string) []string {
	var tokens []string
	for _, code := range codes {
		if len(tokens) > maxWords {
			break
		}
		tokens = append(append(tokens, tokensOf(spacedOut(code))...), endOfSentence)
	}
	return tokens
}

// spacedOut puts a space where a lower-case letter is followed by an upper-case one, or where a word follows an
// abbreviation, and lowers all.
func spacedOut(code string) string {
	var b strings.Builder
	b.Grow(len(code) + 8)
	runes := []rune(code)
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) {
			before := runes[i-1]
			next := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if unicode.IsLower(before) || unicode.IsDigit(before) || unicode.IsUpper(before) && next {
				b.WriteByte(' ')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
