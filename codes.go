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
	"strings"
)

// meaning is what a rule says about a failure. An empty scope is the class's own, or what the words say.
type meaning struct {
	class  Class
	scope  Scope
	reason string
}

// codeRow says what error codes mean. A row is looked at only if its status (if any) is the answer's and its
// phrases (if any) occur in the message. Among the codes of one error the row that stands first decides.
type codeRow struct {
	meaning
	codes   string // as the vendor writes them, separated by spaces; `_` stands for a space in a code
	status  int
	phrases string
}

// commonCodes mean the same wherever they are met: relays hand on the codes of those they buy from. Codes whose
// meaning their own words tell are not listed, see codeWords.
var commonCodes = codeTable(
	// Money.
	codeRow{meaning{QuotaExhausted, "", "a free allowance is used up"}, "free_quota_exceeded free_usage_exhausted daily_free_quota_exceeded", 0, ""},
	codeRow{meaning{BillingError, "", "the spending limit is reached"}, "organization_usage_limit_exceeded project_usage_limit_exceeded project_spend_limit_exceeded billing_hard_limit_reached budget_exceeded", 0, ""},
	codeRow{meaning{BillingError, "", "billing is not set up"}, "billing_not_active BILLING_DISABLED usage_not_included CommodityNotPurchased", 0, ""},
	codeRow{meaning{BillingError, "", "the spending limit is reached"}, "DailyLimitError WeeklyLimitError MonthlyLimitError", 0, "spend|spending|budget"},
	codeRow{meaning{BillingError, ScopeModel, "the free allowance for this model is used up"}, "AllocationQuota.FreeTierOnly", 0, ""},
	codeRow{meaning{BillingError, ScopeModel, "the spending stop on this model is reached"}, "SetLimitExceeded", 0, ""},
	codeRow{meaning{QuotaExhausted, "", "a window of the plan is used up"}, "insufficient_quota", 0, "# week|month|day|hour .. quota\nquota will reset\nweekly|monthly|daily .. quota"},
	codeRow{meaning{RateLimit, "", "too many requests"}, "insufficient_quota", 0, "quota of .. per minute"},
	codeRow{meaning{BillingError, "", "no quota is left to pay with"}, "insufficient_user_quota pre_consume_token_quota_failed insufficient_quota exceeded_current_quota_error", 0, ""},
	codeRow{meaning{QuotaExhausted, "", "the service quota is used up"}, "ServiceQuotaExceededException AccountQuotaExceeded", 0, ""},

	// Credentials, where the words of the code do not tell it from others.
	codeRow{meaning{AuthError, ScopeAccount, "the account is deactivated"}, "account_deactivated", 401, ""},
	codeRow{meaning{AuthError, ScopeAccount, "the API is not switched on for the project"}, "SERVICE_DISABLED CONSUMER_SUSPENDED CONSUMER_INVALID USER_PROJECT_DENIED ACCOUNT_STATE_INVALID", 0, ""},
	codeRow{meaning{AuthError, ScopeAccount, "the account's owner must verify it"}, "VALIDATION_REQUIRED", 0, ""},
	codeRow{meaning{AuthError, ScopeProvider, "this place is not served"}, "unsupported_country_region_territory ip_not_authorized", 0, ""},
	codeRow{meaning{AuthError, ScopeKey, "the credential is not accepted"}, `API_KEY_INVALID API_KEY_EXPIRED API_KEY_SERVICE_BLOCKED API_KEY_IP_ADDRESS_BLOCKED API_KEY_HTTP_REFERRER_BLOCKED
		CREDENTIALS_MISSING ACCESS_TOKEN_EXPIRED ACCESS_TOKEN_SCOPE_INSUFFICIENT IAM_PERMISSION_DENIED ExpiredTokenException
		UnrecognizedClientException InvalidSignatureException SignatureDoesNotMatch IncompleteSignature InvalidClientTokenId
		MissingAuthenticationToken token_not_found_in_db expired_key mismatched_organization`, 0, ""},

	// Policy and size.
	codeRow{meaning{ContentPolicy, "", "refused by a safety filter"}, "ResponsibleAIPolicyViolation sensitive_words_detected policy_violation prompt_blocked data_inspection_failed guardrail_intervened", 0, ""},
	codeRow{meaning{ContextOverflow, "", "the request is too long"}, "string_above_max_length request_too_large context_too_large tokens_limit_reached RequestBodyTooLarge", 0, ""},

	// Models.
	codeRow{meaning{ModelUnavailable, "", "this key has no such model"}, `model_not_found DeploymentNotFound OperationNotSupported unsupported_api_for_model key_model_access_denied
		team_model_access_denied get_channel_failed ModelNotReadyException no_available_channel model_price_error`, 0, ""},

	// The upstream's own faults under a status that says otherwise.
	codeRow{meaning{ServerError, "", "the model produced something unusable"}, "tool_use_failed json_validate_failed ModelErrorException ModelStreamErrorException unexpected_output", 0, ""},
	codeRow{meaning{ServerError, "", "the upstream failed while answering"}, "generation incomplete_generation network_error", 0, ""},
	codeRow{meaning{Timeout, "", "the upstream ran out of time"}, "ModelTimeoutException channel:response_time_exceeded", 0, ""},
	codeRow{meaning{Overloaded, "", "the upstream is out of capacity"}, "slow_down", 503, ""},
	// https://platform.openai.com/docs/guides/flex-processing
	codeRow{meaning{Overloaded, "", "the upstream is out of capacity"}, "resource_unavailable", 429, ""},

	// The caller's mistakes, whatever the sentence quotes.
	codeRow{meaning{BadRequest, "", "a value in the request is wrong"}, `invalid_value unsupported_value unsupported_parameter unknown_parameter missing_required_parameter invalid_type
		integer_below_min_value integer_above_max_value decimal_below_min_value decimal_above_max_value array_above_max_length
		empty_array extra_forbidden unknown_url method_not_supported unsupported_media_type invalid_image_url invalid_base64
		invalid_image_format previous_response_not_found invalid_encrypted_content`, 0, ""},
)

// codeWords read codes that no table lists by the words they are made of. They are as sure as a listed code.
var codeWords = wordTable(
	wordRow{meaning{BillingError, "", "out of money"}, nil, `
		insufficient|low|negative|no|not ... balance|credit|credits|fund|funds|points
		balance|credit|credits .. insufficient|exhausted|depleted|expired|low|empty|overdue|not
		arrear*
		arrearage
		overdue
		in arrears
		prepaid|postpaid bill
		payment required|failed|overdue
		billing|spend|spending|budget ... exceeded|reached|exhausted|error|inactive|disabled
		resource pack|package exhausted
		free resource pack exhausted
		charge resource exhausted
		service stop
		invalid subscription
		subscription|plan|package .. expired|required|inactive
		exceeded budget`, ""},
	wordRow{meaning{AuthError, ScopeProvider, "this place is not served"}, nil, `
		country|region|territory|location .. unsupported|blocked|denied|restricted|not
		unsupported .. country|region|location
		geo blocked|restricted`, ""},
	wordRow{meaning{ContentPolicy, "", "refused by a safety filter"}, nil, `
		content|safety|usage|responsible|cyber|bio|moderation .. policy|violation|filter|filtered|flagged|blocked|risk
		content moderation|safety|security|restricted
		sensitive content|information|words|text|image
		sensitive
		misalignment policy
		censorship
		unsafe
		text|image|content illegal
		inspection failed
		moderation
		violation fee
		prompt blocked
		prohibited content
		safety
		recitation
		blocklist
		spii
		error toxic`, ""},
	wordRow{meaning{ContextOverflow, "", "the request is too long"}, nil, `
		context length|window|size|limit|too|overflow
		context .. exceeded
		prompt|input .. too long|large
		token|tokens|character|characters|text|message|messages too long
		max .. prompt|input|context .. tokens|length .. exceeded
		exceed* context
		payload|entity|request too large
		prompt tokens exceeded`, ""},
	wordRow{meaning{Overloaded, "", "the upstream is out of capacity"}, nil, `
		overload*
		server|model|tier|system|insufficient|no|out|service ... capacity
		capacity exceeded|exhausted|exceed
		queue exceeded|full
		engine server limit exceeded
		model cooldown
		server|system|model|service busy
		upstream|provider rate limited|limit|throttled`, ""},
	wordRow{meaning{QuotaExhausted, "", "an allowance is used up"}, nil, `
		usage limit
		free .. usage|quota|tier .. exhausted|exceeded
		daily|weekly|monthly|day|week|month ... limit|quota|exceeded|exhausted
		per|by day|week|month
		quota exhausted
		plan|package|allowance ... exceeded|exhausted|limit`, ""},
	wordRow{meaning{AuthError, ScopeAccount, "the account is closed"}, nil, `
		organization|org|account|user|project|tenant|workspace ... deactivated|disabled|restricted|suspended|banned|locked|terminated|blocked
		deactivated|disabled|suspended account|workspace|organization|project|user
		tos violation
		inactive account
		invalid account status`, ""},
	wordRow{meaning{ModelUnavailable, "", "this key has no such model"}, nil, `
		model|deployment|endpoint ... not found|exist|open|opened|supported|available|ready|activated|deployed|loaded|allowed
		service not open|opened|activated
		model|endpoint ... closed|unavailable|decommissioned|deprecated|archived|retired|loading|disabled|denied
		closed endpoint
		invalid|unknown|unsupported|no .. model|deployment|endpoint
		model loading
		model access|id access .. denied|disabled
		model|deployment .. terms|permission|permissions|required|blocked`, ""},
	wordRow{meaning{Timeout, "", "the upstream ran out of time"}, nil, `
		timeout|timedout
		timed|time out
		deadline exceeded`, ""},
	wordRow{meaning{AuthError, "", "the credential is not accepted"}, nil, `
		invalid|missing|incorrect|wrong|bad|expired|no .. api|apikey|auth* .. key|token|header
		invalid|incorrect|expired|bad|missing|wrong token|credential|credentials|apikey|signature|authentication|authorization|iam
		invalid|incorrect|expired .. token
		api key .. invalid|expired|disabled|missing|revoked|blocked
		token .. expired|invalid|invalidated|revoked
		access token .. expired|invalid
		auth failure|failed
		authentication .. error|failed|fails|required
		unauthenticated
		unauthorized`, ""},
)

// weakCodes read codes that are sent with anything: they count after the words of the message, and only where the
// status does not know better.
var weakCodes = wordTable(
	wordRow{meaning{RateLimit, "", "too many requests"}, unless(402), `
		rate limit*
		rate|frequency .. limit|exceeded|quota
		ratelimit*
		rate increased
		too many requests|tokens
		too many
		throttl*
		limit reached|requests|exceeded
		request limit exceeded
		request burst
		burst rate
		concurren*
		resource exhausted
		qps|rpm|tpm|qpm`, ""},
	wordRow{meaning{QuotaExhausted, "", "an allowance is used up"}, paidAndNoServerFault, `
		quota`, ""},
	wordRow{meaning{AuthError, "", "access is denied"}, unless(404, 408, 413, 429, 504, 529), `
		permission .. denied|error
		auth error
		access|operation denied
		forbidden
		authentication
		not authorized
		not authenticated`, ""},
	wordRow{meaning{BadRequest, "", "the request is not understood"}, only(200, 400, 405, 406, 409, 411, 415, 422, 424, 499, 500, 501, 502, 503), `
		invalid
		unsupported
		unknown parameter|field|argument|url
		missing
		malformed
		bad request
		badrequest*
		validation
		extra forbidden
		unprocessable
		not supported
		conflict
		wrong`, ""},
	wordRow{meaning{ServerError, "", "the upstream failed"}, only(200, 400, 409, 422, 424, 499), `
		internal
		server error
		service unavailable
		unavailable
		api error
		upstream error
		upstream|backend
		bad gateway`, ""},
)

// only and unless say in which statuses a row speaks; an error under a success status, or in a stream, has 200.
func only(statuses ...int) func(int) bool {
	return func(status int) bool {
		for _, s := range statuses {
			if s == status {
				return true
			}
		}
		return false
	}
}

func unless(statuses ...int) func(int) bool {
	listed := only(statuses...)
	return func(status int) bool { return !listed(status) }
}

func notServerFault(status int) bool { return status < 500 || status > 599 }

// paidAndNoServerFault: under a 402 a quota without a window is a matter of money.
func paidAndNoServerFault(status int) bool {
	return notServerFault(status) && status != http.StatusPaymentRequired
}

// codes is a table of codeRows, found by code.
type codes struct {
	rows    []codeRow
	phrases []*phraseTable
	byCode  map[string][]int
}

// codeTable indexes rows. It panics on a malformed row, which any test notices.
func codeTable(rows ...codeRow) *codes {
	t := &codes{rows: rows, phrases: make([]*phraseTable, len(rows)), byCode: make(map[string][]int)}
	for i, row := range rows {
		for code := range strings.FieldsSeq(row.codes) {
			key := codeKey(code)
			t.byCode[key] = append(t.byCode[key], i)
		}
		if row.phrases != "" {
			t.phrases[i] = new(phraseTable)
			t.phrases[i].add(row.phrases, "")
		}
	}
	return t
}

// find returns the first row that fits, and the code as the table writes it; nil if none does.
func (t *codes) find(sent []string, status int, tokens []string, text string) (*codeRow, string) {
	best, name := len(t.rows), ""
	for _, code := range sent {
		for _, i := range t.byCode[codeKey(code)] {
			row := &t.rows[i]
			if i >= best || row.status != 0 && row.status != status ||
				t.phrases[i] != nil && t.phrases[i].find(tokens, text, nil) < 0 {
				continue
			}
			best, name = i, ""
			for listed := range strings.FieldsSeq(row.codes) {
				if codeKey(listed) == codeKey(code) {
					name = listed // not the upstream's spelling: nothing of its text may get into a rule's name
					break
				}
			}
		}
	}
	if best == len(t.rows) {
		return nil, ""
	}
	return &t.rows[best], name
}

// codeKey makes InsufficientQuota, insufficient_quota and INSUFFICIENT-QUOTA one.
func codeKey(code string) string {
	var b strings.Builder
	b.Grow(len(code))
	for i := range len(code) {
		switch c := code[i]; {
		case c >= 'A' && c <= 'Z':
			b.WriteByte(c + 'a' - 'A')
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			b.WriteByte(c)
		}
	}
	return b.String()
}
