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
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
	"github.com/llmfailover/caddy-llm-failover/internal/hint"
)

// Rule is an operator's own rule: a failure that fits all its conditions is of its class. Of the values of one
// condition any may fit; a rule without conditions is a load error.
type Rule struct {
	// The class of failures that fit.
	Class Class `json:"class,omitempty"`

	// HTTP statuses.
	Status []int `json:"status,omitempty"`

	// Error codes or types, as they stand in the error's body; compared without regard to case.
	Code []string `json:"code,omitempty"`

	// Words of the error's message; compared without regard to case.
	Text []string `json:"text,omitempty"`
}

// validate reports what is wrong with the rule.
func (r *Rule) validate() error {
	if !slices.Contains(Classes, r.Class) {
		return fmt.Errorf("classify: unknown class %q; it may be %s", r.Class, listOf(Classes))
	}
	if len(r.Status) == 0 && len(r.Code) == 0 && len(r.Text) == 0 {
		return fmt.Errorf("classify %s: give it a status, a code or a text", r.Class)
	}
	for _, status := range r.Status {
		if status < 100 || status > 599 {
			return fmt.Errorf("classify %s: status %d is not between 100 and 599", r.Class, status)
		}
	}
	for _, words := range [][]string{r.Code, r.Text} {
		if slices.Contains(words, "") {
			return fmt.Errorf("classify %s: an empty code or text fits nothing", r.Class)
		}
	}
	return nil
}

func listOf(classes []Class) string {
	names := make([]string, len(classes))
	for i, c := range classes {
		names[i] = string(c)
	}
	return strings.Join(names, ", ")
}

// fits reports whether all conditions of the rule hold. Pages are searched for an operator's words too.
func (r *Rule) fits(e *Evidence, s *said) bool {
	if len(r.Status) > 0 && !slices.Contains(r.Status, e.Status) {
		return false
	}
	if len(r.Code) > 0 && !slices.ContainsFunc(r.Code, func(code string) bool {
		return s.status != 0 && code == strconv.Itoa(s.status) ||
			slices.ContainsFunc(s.codes, func(sent string) bool { return strings.EqualFold(sent, code) })
	}) {
		return false
	}
	if len(r.Text) > 0 {
		message := s.message
		if message == "" {
			message = string(e.Body)
		}
		message = strings.ToLower(message)
		return slices.ContainsFunc(r.Text, func(text string) bool { return strings.Contains(message, strings.ToLower(text)) })
	}
	return true
}

// Finding is what was seen of an answer's body before it was given up, where its status does not tell.
type Finding uint8

const (
	FoundNothing    Finding = iota // judge by status and body
	FoundError                     // a success status, but Body is an error object (or the event of a stream)
	FoundEmpty                     // a success status and nothing usable in it
	FoundCut                       // the body or stream broke off
	FoundNoEnvelope                // a success status and a body that is not what this dialect answers with
	FoundFiltered                  // an answer that a safety filter left empty: delivered like any other
	FoundUpgrade                   // the upgrade that was asked for
)

// Evidence is all that an attempt brought, as values; classifying it needs nothing else.
type Evidence struct {
	Err     error // no answer, or one that broke off: the transport's error
	Status  int   // 0: no answer
	Header  http.Header
	Body    []byte // the decoded beginning of the body, or the data of one event
	Found   Finding
	Dialect dialect.Dialect
	Model   string // as sent upstream; empty if the request names none
	Vendor  string // one of Vendors; empty is generic
	Rules   []Rule // the operator's, first match wins
	Now     time.Time
}

// classify says what an outcome means. It is pure: the same evidence gives the same verdict.
//
// The order of evidence: the transport's error; then what kind of body there is; then the operator's rules, the
// vendor's codes, companions with a structure (Google's details, Anthropic's windows), codes that mean the same
// everywhere, the words of the message, codes that are sent with anything, and the status.
func classify(e Evidence) Verdict {
	success := e.Status >= 200 && e.Status < 300 || e.Status == http.StatusNotModified
	switch {
	case e.Err != nil && (e.Status == 0 || success && e.Found != FoundError):
		return classifyTransport(e.Err)
	case success && e.Found == FoundNothing, e.Found == FoundUpgrade:
		return Verdict{}
	case e.Found == FoundEmpty:
		return Verdict{Class: EmptyResponse, Scope: ScopeNone, Rule: "empty answer", Reason: "nothing usable in the answer"}
	case e.Found == FoundCut:
		return Verdict{Class: ServerError, Scope: ScopeKey, Rule: "answer cut short", Reason: "the answer broke off"}
	case e.Found == FoundFiltered:
		return Verdict{Class: ContentPolicy, Scope: ScopeRequest, Rule: "finish reason", Reason: "a safety filter stopped the answer"}
	}

	s := hear(e.Header, e.Body)
	for i := range e.Rules {
		if r := &e.Rules[i]; r.fits(&e, s) {
			return e.verdict(s, meaning{class: r.Class, reason: "fits an own rule"}, "own rule "+strconv.Itoa(i+1))
		}
	}
	m, rule := e.meaning(s, success)
	if s.reseller {
		m = resold(m)
	}
	v := e.verdict(s, m, rule)
	if v.Class == RateLimit && v.Wait > spentWindow && v.Scope != ScopeProvider && v.Scope != ScopeRequest {
		v.Class = QuotaExhausted
		if v.Scope == ScopeKey {
			v.Scope = ScopeAccount
		}
	}
	return v
}

// spentWindow is how long a throttle may ask for before it is a window of some plan that is used up.
const spentWindow = 5 * time.Minute

// meaning goes through the evidence of an answer in its order. It returns the rule that spoke, too.
func (e *Evidence) meaning(s *said, success bool) (meaning, string) {
	if e.Status >= 300 && e.Status < 400 {
		return meaning{ServerError, ScopeKey, "redirect"}, "redirect"
	}
	if m, ok := atTheEdge(e, s); ok {
		return m, "edge: " + m.reason
	}
	// What came in place of an answer may still be a short error message, or say how it ended.
	if e.Found == FoundNoEnvelope && (s.form != formText || len(e.Body) > maxProse) && len(s.finish)+len(s.codes) == 0 {
		return meaning{ServerError, ScopeKey, "not an answer of this API"}, "no envelope"
	}
	status := e.Status
	if success {
		// Its own status gives no evidence. One that the error names counts as if the answer had it.
		if status = s.status; status == 0 {
			status = http.StatusOK
		}
	}
	if s.form != formHTML {
		if m, rule := e.byWhatIsSaid(s, status); rule != "" {
			return m, rule
		}
	}
	if success && s.status == 0 {
		return meaning{ServerError, ScopeKey, "an error without a known reason"}, "error in an answer"
	}
	m := byStatus(status, s)
	return m, "status " + strconv.Itoa(status)
}

// maxProse is how long a text may be that comes in place of an answer and is still read as an error message.
const maxProse = 512

// byVendor judges what means something else, or nothing, when others send it.
func (e *Evidence) byVendor(s *said, status int) (meaning, string) {
	v, ok := vendors[e.Vendor]
	if !ok {
		return meaning{}, ""
	}
	sent := s.codes
	if e.Vendor == "minimax" {
		sent = append(slices.Clip(sent), codeInParentheses(s.plain)...)
	}
	if v.codes != nil {
		if row, code := v.codes.find(sent, status, s.tokens, s.plain); row != nil {
			return row.meaning, e.Vendor + ": code " + code
		}
	}
	if v.words != nil {
		if row := v.words.find(s.tokens, s.plain, status, nil); row != nil {
			return row.meaning, e.Vendor + ": " + row.reason
		}
	}
	if m, ok := v.statuses[status]; ok {
		return m, e.Vendor + ": status " + strconv.Itoa(status)
	}
	if m, ok := v.silent[status]; ok && s.form == formNone {
		return m, e.Vendor + ": status " + strconv.Itoa(status) + " without a word"
	}
	return meaning{}, ""
}

// byWhatIsSaid judges codes and words. The rule is empty if they say nothing.
func (e *Evidence) byWhatIsSaid(s *said, status int) (meaning, string) {
	if m, rule := e.byVendor(s, status); rule != "" {
		return m, rule
	}
	for _, from := range []struct {
		name   string
		codes  []string
		tokens []string
	}{{"code", s.codes, s.codeTokens}, {"finish reason", s.finish, codeTokens(s.finish)}} {
		if row, code := commonCodes.find(from.codes, status, s.tokens, s.plain); row != nil {
			return row.meaning, from.name + " " + code
		}
		if row := codeWords.find(from.tokens, "", status, nil); row != nil {
			return row.meaning, from.name + " words: " + row.reason
		}
	}
	if m, ok := s.google(); ok {
		return m, "google: " + m.reason
	}
	if m, ok := unifiedWindows(e.Header); ok {
		return m, "anthropic: " + m.reason
	}
	// Where the message points into the caller's content, what follows may be the caller's words: only a refusal
	// of the request itself is believed then.
	cites := s.cites || citesContent(s.plain) || (status == 400 || status == 422) && mistakes.find(s.tokens, "", status, nil) != nil
	if row := sentences.find(s.tokens, s.plain, status, func(r *wordRow) bool { return !cites || r.class.Parent() == BadRequest }); row != nil {
		return row.meaning, "words: " + row.reason
	}
	if status := relayedStatus(s); status != 0 {
		return byStatus(status, s), "relayed status " + strconv.Itoa(status)
	}
	// Under a 429 such codes tell no more than the status, but for a quota.
	if status != http.StatusTooManyRequests || slices.Contains(s.codeTokens, "quota") {
		if row := weakCodes.find(s.codeTokens, "", status, nil); row != nil {
			return row.meaning, "code words: " + row.reason
		}
	}
	return meaning{}, ""
}

// codeInParentheses is MiniMax's code, where another dialect has no place for it: "insufficient balance (1008)".
func codeInParentheses(message string) []string {
	message = strings.TrimRight(message, " .\n")
	if open := strings.LastIndexByte(message, '('); open >= 0 && strings.HasSuffix(message, ")") {
		code := message[open+1 : len(message)-1]
		if _, err := strconv.Atoi(code); err == nil && len(code) == 4 {
			return []string{code}
		}
	}
	return nil
}

// relayedStatus is the status that a one-api relay got, and hides behind its own.
func relayedStatus(s *said) int {
	if slices.Contains(s.codes, "bad_response_status_code") {
		if status, err := strconv.Atoi(s.param); err == nil && status >= 400 && status < 600 {
			return status
		}
		_, text, _ := strings.Cut(s.message, "bad response status code ")
		if status, err := strconv.Atoi(text[:min(len(text), 3)]); err == nil && status >= 400 && status < 600 {
			return status
		}
	}
	return 0
}

// verdict completes a meaning: whom it is about, and how long the upstream asks to be left alone.
func (e *Evidence) verdict(s *said, m meaning, rule string) Verdict {
	v := Verdict{Class: m.class, Scope: m.scope, Rule: rule, Reason: m.reason}
	if e.Status != 0 {
		v.Reason += " (status " + strconv.Itoa(e.Status) + ")"
	}
	said := e.wait(m.class)
	v.Wait, v.Hint = said.Wait, said.Raw
	if v.Scope == "" {
		v.Scope = e.scope(s, m.class)
	}
	return v
}

// resold turns what befell a reseller's own credentials at whom it buys from into what it is for us: its other
// customers, and our other keys there, meet the same.
func resold(m meaning) meaning {
	switch m.class {
	case RateLimit, QuotaExhausted:
		return meaning{Overloaded, ScopeProvider, "the reseller is throttled upstream"}
	case AuthError, BillingError:
		return meaning{ServerError, ScopeKey, "the reseller is refused upstream"}
	}
	return m
}

// wait reads the upstream's hint, where one has a meaning: nobody waits for money, or for a better request.
func (e *Evidence) wait(class Class) hint.Hint {
	switch class {
	case RateLimit, QuotaExhausted:
		return hint.Read(e.Header, e.Body, e.Now, true)
	case Overloaded, ServerError, ModelUnavailable, Timeout, ProviderUnavailable:
		return hint.Read(e.Header, e.Body, e.Now, false)
	}
	return hint.Hint{}
}

// scopes are what the classes are about where the answer does not say otherwise.
var scopes = map[Class]Scope{
	RateLimit: ScopeKey, QuotaExhausted: ScopeAccount, BillingError: ScopeAccount, AuthError: ScopeKey,
	Timeout: ScopeKey, ProviderUnavailable: ScopeProvider, ServerError: ScopeKey, Overloaded: ScopeProvider,
	EmptyResponse: ScopeNone, ModelUnavailable: ScopeModel, BadRequest: ScopeRequest,
	ContextOverflow: ScopeRequest, ContentPolicy: ScopeRequest, Unknown: ScopeNone,
}

func (e *Evidence) scope(s *said, class Class) Scope {
	if class == RateLimit || class == QuotaExhausted {
		if largerThanLimit(s.lower) {
			return ScopeRequest
		}
		if s.quotaModel || names(s.lower, e.Model) {
			return ScopeModel
		}
		for _, tokens := range [][]string{s.codeTokens, s.tokens} {
			if row := limitScopes.find(tokens, s.lower, e.Status, nil); row != nil {
				return row.scope
			}
		}
	}
	if class == AuthError { // a code says less than the sentence beside it
		wider := func(r *wordRow) bool {
			return r.class == AuthError && (r.scope == ScopeAccount || r.scope == ScopeProvider)
		}
		if row := sentences.find(s.tokens, s.plain, e.Status, wider); row != nil {
			return row.scope
		}
	}
	return scopes[class]
}

// names reports whether a model is named in a text, as a word of its own.
func names(lower, model string) bool {
	if model == "" {
		return false
	}
	model = strings.ToLower(model)
	inName := func(c byte) bool { return isWordByte(c) || strings.IndexByte("-_./:@", c) >= 0 }
	for from := 0; ; {
		i := strings.Index(lower[from:], model)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(model)
		before := i == 0 || !inName(lower[i-1]) || strings.HasSuffix(lower[:i], "models/")
		after := end == len(lower) || !inName(lower[end]) ||
			(lower[end] == '.' || lower[end] == ':') && (end+1 == len(lower) || !isWordByte(lower[end+1]))
		if before && after {
			return true
		}
		from = i + 1
	}
}

// largerThanLimit reports whether a limit is about the size of this very request: "Limit 6000, Requested 9000".
func largerThanLimit(lower string) bool {
	limit, ok := numberAfter(lower, "limit")
	if !ok {
		return false
	}
	requested, ok := numberAfter(lower, "requested")
	return ok && requested > limit
}

// numberAfter returns the number that follows a word, after no more than a colon and spaces.
func numberAfter(text, word string) (int64, bool) {
	for {
		_, rest, found := strings.Cut(text, word)
		if !found {
			return 0, false
		}
		text = rest
		rest = strings.TrimLeft(rest, " :=")
		end := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != ',' })
		if end < 0 {
			end = len(rest)
		}
		if digits := strings.ReplaceAll(rest[:end], ",", ""); digits != "" {
			n, err := strconv.ParseInt(digits, 10, 64)
			return n, err == nil
		}
	}
}

// byStatus is what a status means if nothing better is known.
func byStatus(status int, s *said) meaning {
	switch status {
	case 400, 404, 405, 406, 410, 411, 412, 414, 415, 416, 417, 422, 426, 428, 431, 451, 501:
		return meaning{BadRequest, "", "the request is refused"}
	case 409:
		if s.form == formNone {
			return meaning{ServerError, "", "a conflict without a word"} // as for a lock that could not be had in time
		}
		return meaning{BadRequest, "", "the request is in conflict"}
	case 401, 403:
		return meaning{AuthError, "", "the credential is refused"}
	case 402:
		return meaning{BillingError, "", "payment required"}
	case 408, 504, 524, 598, 599:
		return meaning{Timeout, "", "the upstream ran out of time"}
	case 413:
		return meaning{ContextOverflow, "", "the request is too long"}
	case 429:
		return meaning{RateLimit, "", "too many requests"}
	case 421, 423, 424, 425, 444, 499:
		return meaning{ServerError, "", "the upstream failed"}
	case 521, 522, 523, 525, 526, 530:
		return meaning{ProviderUnavailable, "", "the edge cannot reach the origin"}
	case 511:
		return meaning{ProviderUnavailable, "", "the network wants a login"}
	case 529:
		return meaning{Overloaded, "", "the upstream is out of capacity"}
	}
	if status >= 500 {
		return meaning{ServerError, "", "the upstream failed"}
	}
	return meaning{Unknown, "", "a status that means nothing known"}
}
