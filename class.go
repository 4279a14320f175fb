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

import "time"

// Class says why an upstream call failed. The empty class means that it did not.
type Class string

// The nine classes, and the finer ones that inherit from them (see [Class.Parent]).
const (
	RateLimit           Class = "rate_limit"
	Timeout             Class = "timeout"
	AuthError           Class = "auth_error"
	BillingError        Class = "billing_error"
	ProviderUnavailable Class = "provider_unavailable"
	ServerError         Class = "server_error"
	ModelUnavailable    Class = "model_unavailable"
	BadRequest          Class = "bad_request"
	Unknown             Class = "unknown"

	QuotaExhausted  Class = "quota_exhausted"  // a billing_error
	Overloaded      Class = "overloaded"       // a server_error
	EmptyResponse   Class = "empty_response"   // a server_error
	ContextOverflow Class = "context_overflow" // a bad_request
	ContentPolicy   Class = "content_policy"   // a bad_request
)

// Classes lists every class, the nine first, in the order the documentation uses.
var Classes = []Class{
	RateLimit, Timeout, AuthError, BillingError, ProviderUnavailable, ServerError, ModelUnavailable, BadRequest, Unknown,
	QuotaExhausted, Overloaded, EmptyResponse, ContextOverflow, ContentPolicy,
}

// Parent returns the class that c inherits from, or c itself for one of the nine.
func (c Class) Parent() Class {
	switch c {
	case QuotaExhausted:
		return BillingError
	case Overloaded, EmptyResponse:
		return ServerError
	case ContextOverflow, ContentPolicy:
		return BadRequest
	}
	return c
}

// Scope says what a verdict is about, and so what may be charged or benched for it.
type Scope string

const (
	ScopeNone     Scope = "none"         // nobody
	ScopeRequest  Scope = "request"      // this request alone: the key is passed over, not benched
	ScopeKey      Scope = "key"          // one credential
	ScopeModel    Scope = "model_on_key" // one model of one credential
	ScopeAccount  Scope = "account"      // every key that shares the bill
	ScopeProvider Scope = "provider"     // the upstream as a whole
)

// Verdict is what an outcome means. The zero Verdict means success.
type Verdict struct {
	Class Class
	Scope Scope
	// Wait is how long the upstream asks to be left alone, as it said it (not yet capped). Zero: it did not say.
	Wait time.Duration
	// Hint is how it said it, at most 80 bytes of a field or a sentence. Unlike all else here it is the upstream's own.
	Hint string
	// Rule names the rule that spoke, for logs and the classify command.
	Rule string
	// Reason says in a few words what was seen. It holds no word of the upstream's or the caller's, so no secret.
	Reason string
}

// Failed reports whether the outcome was a failure.
func (v Verdict) Failed() bool { return v.Class != "" }

// charged reports whether a key, account or provider answers for the failure.
func (v Verdict) charged() bool {
	switch v.Scope {
	case ScopeKey, ScopeModel, ScopeAccount, ScopeProvider:
		return true
	}
	return false
}
