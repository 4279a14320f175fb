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

// field is a limit told in three header fields, which are named as [net/http] has them.
type field struct {
	name                    string
	remaining, limit, reset string
	refill, soft            bool
}

const (
	requests     = "requests"
	tokensMinute = "X-Ratelimit-Remaining-Tokens-Minute"
	requestsDay  = "X-Ratelimit-Remaining-Requests-Day"
)

// openAIFields are OpenAI's, whose resets are durations: "the time until the rate limit resets to its initial state"
// (https://platform.openai.com/docs/guides/rate-limits), so 1 request of 500 a minute resets in 120ms, and 3 of 200 a
// day in 16m17s. Groq's are the same, of a day for requests and a minute for tokens
// (https://console.groq.com/docs/rate-limits; measured, 31 requests of 14400 a day reset in 3m6s, 6s each:
// https://github.com/Nathanon717/freecode/blob/main/docs/ideas/retry-handling.md); xAI's have no reset.
var openAIFields = [...]field{
	{name: requests, remaining: "X-Ratelimit-Remaining-Requests", limit: "X-Ratelimit-Limit-Requests", reset: "X-Ratelimit-Reset-Requests", refill: true},
	{name: tokens, remaining: "X-Ratelimit-Remaining-Tokens", limit: "X-Ratelimit-Limit-Tokens", reset: "X-Ratelimit-Reset-Tokens", refill: true},
	{name: "project_tokens", remaining: "X-Ratelimit-Remaining-Project-Tokens", limit: "X-Ratelimit-Limit-Project-Tokens", reset: "X-Ratelimit-Reset-Project-Tokens", refill: true},
}

// spanFields have their span of time in the name: those of Cerebras (https://inference-docs.cerebras.ai/support/rate-limits;
// resets in seconds, a token bucket), of SambaNova beside OpenAI's names (https://docs.sambanova.ai/docs/en/models/rate-limits)
// and, without resets, of Mistral (https://github.com/mistralai/client-ts/issues/169), who does not send them with streams.
var spanFields = [...]field{
	{name: "requests_minute", remaining: "X-Ratelimit-Remaining-Requests-Minute", limit: "X-Ratelimit-Limit-Requests-Minute", reset: "X-Ratelimit-Reset-Requests-Minute", refill: true},
	{name: "requests_hour", remaining: "X-Ratelimit-Remaining-Requests-Hour", limit: "X-Ratelimit-Limit-Requests-Hour", reset: "X-Ratelimit-Reset-Requests-Hour", refill: true},
	{name: "requests_day", remaining: requestsDay, limit: "X-Ratelimit-Limit-Requests-Day", reset: "X-Ratelimit-Reset-Requests-Day", refill: true},
	{name: "tokens_minute", remaining: tokensMinute, limit: "X-Ratelimit-Limit-Tokens-Minute", reset: "X-Ratelimit-Reset-Tokens-Minute", refill: true},
	{name: "tokens_hour", remaining: "X-Ratelimit-Remaining-Tokens-Hour", limit: "X-Ratelimit-Limit-Tokens-Hour", reset: "X-Ratelimit-Reset-Tokens-Hour", refill: true},
	{name: "tokens_day", remaining: "X-Ratelimit-Remaining-Tokens-Day", limit: "X-Ratelimit-Limit-Tokens-Day", reset: "X-Ratelimit-Reset-Tokens-Day", refill: true},
	{name: "requests_minute", remaining: "X-Ratelimit-Remaining-Req-Minute", limit: "X-Ratelimit-Limit-Req-Minute"},
	{name: "tokens_month", remaining: "X-Ratelimit-Remaining-Tokens-Month", limit: "X-Ratelimit-Limit-Tokens-Month"},
}

// anthropicFields are Anthropic's: RFC 3339, "when it will be fully replenished"; tokens rounded to thousands, so that
// their 0 may be a few hundred (https://docs.claude.com/en/api/rate-limits#response-headers).
var anthropicFields = [...]field{
	{name: requests, remaining: "Anthropic-Ratelimit-Requests-Remaining", limit: "Anthropic-Ratelimit-Requests-Limit", reset: "Anthropic-Ratelimit-Requests-Reset", refill: true},
	{name: tokens, remaining: "Anthropic-Ratelimit-Tokens-Remaining", limit: "Anthropic-Ratelimit-Tokens-Limit", reset: "Anthropic-Ratelimit-Tokens-Reset", refill: true},
	{name: "input_tokens", remaining: "Anthropic-Ratelimit-Input-Tokens-Remaining", limit: "Anthropic-Ratelimit-Input-Tokens-Limit", reset: "Anthropic-Ratelimit-Input-Tokens-Reset", refill: true},
	{name: "output_tokens", remaining: "Anthropic-Ratelimit-Output-Tokens-Remaining", limit: "Anthropic-Ratelimit-Output-Tokens-Limit", reset: "Anthropic-Ratelimit-Output-Tokens-Reset", refill: true},

	// Beyond the priority tier is the standard one, https://docs.claude.com/en/api/service-tiers; beyond the fast mode
	// the usual speed, and its limit is 0 for most, https://docs.claude.com/en/build-with-claude/fast-mode.
	{name: "priority_input_tokens", remaining: "Anthropic-Priority-Input-Tokens-Remaining", limit: "Anthropic-Priority-Input-Tokens-Limit", reset: "Anthropic-Priority-Input-Tokens-Reset", refill: true, soft: true},
	{name: "priority_output_tokens", remaining: "Anthropic-Priority-Output-Tokens-Remaining", limit: "Anthropic-Priority-Output-Tokens-Limit", reset: "Anthropic-Priority-Output-Tokens-Reset", refill: true, soft: true},
	{name: "fast_input_tokens", remaining: "Anthropic-Fast-Input-Tokens-Remaining", limit: "Anthropic-Fast-Input-Tokens-Limit", reset: "Anthropic-Fast-Input-Tokens-Reset", refill: true, soft: true},
	{name: "fast_output_tokens", remaining: "Anthropic-Fast-Output-Tokens-Remaining", limit: "Anthropic-Fast-Output-Tokens-Limit", reset: "Anthropic-Fast-Output-Tokens-Reset", refill: true, soft: true},
}

// loneFields come alone, without others that would tell that they are there.
var loneFields = [...]field{
	// OpenRouter's, on 429s only, in epoch milliseconds and right to the second
	// (https://openrouter.ai/docs/api-reference/limits), Together's, and those of many gateways.
	{name: requests, remaining: "X-Ratelimit-Remaining", limit: "X-Ratelimit-Limit", reset: "X-Ratelimit-Reset"},
	{name: requests, remaining: "Ratelimit-Remaining", limit: "Ratelimit-Limit", reset: "Ratelimit-Reset"},
}

// fireworksFields are Fireworks', without resets. Beyond them requests are often served,
// https://docs.fireworks.ai/serverless/rate-limits.
var fireworksFields = [...]field{
	{name: "input_tokens", remaining: "X-Ratelimit-Remaining-Tokens-Prompt", limit: "X-Ratelimit-Limit-Tokens-Prompt", soft: true},
	{name: "output_tokens", remaining: "X-Ratelimit-Remaining-Tokens-Generated", limit: "X-Ratelimit-Limit-Tokens-Generated", soft: true},
}

// windows are those of Anthropic's subscriptions, their resets in epoch seconds. The ones of a model hold for its
// family only.
var windows = [...]struct{ name, used, status, reset string }{
	window("5h"), window("7d"), window("7d_opus"), window("7d_sonnet"),
}

const unifiedStatus = "Anthropic-Ratelimit-Unified-Status"

func window(name string) struct{ name, used, status, reset string } {
	const prefix = "Anthropic-Ratelimit-Unified-"
	return struct{ name, used, status, reset string }{name, prefix + name + "-Utilization", prefix + name + "-Status", prefix + name + "-Reset"}
}
