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
	"net/http"
	"time"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
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

// Finding is what was seen of an answer's body before it was given up, where its status does not tell.
type Finding uint8

const (
	FoundNothing    Finding = iota // judge by status and body
	FoundError                     // a success status, but Body is an error object (or the event of a stream)
	FoundEmpty                     // a success status and nothing usable in it
	FoundCut                       // the body or stream broke off
	FoundNoEnvelope                // a success status and a body that is not what this dialect answers with
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
