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

// Trusted reports whether a vendor's figures may take a key out of service without being asked for. Names are those
// of the vendors' table.
func Trusted(vendor string) bool { return doubts[vendor] == "" }

// Doubt returns why a vendor's figures are not to be believed, or "".
func Doubt(vendor string) string { return doubts[vendor] }

// doubts are the vendors whose zero does not mean that the next request fails.
var doubts = map[string]string{
	// 429s with 45 of 50 requests left, https://learn.microsoft.com/en-us/answers/questions/2156987; all of them -1 and 0,
	// https://github.com/openai/openai-dotnet/issues/838; of a slice of the minute and of estimated tokens,
	// https://clemenssiebler.com/posts/understanding-azure-openai-x-ratelimit-remaining-tokens-x-ratelimit-remaining-requests-headers/.
	"azure": "they are estimates of slices of a minute, and refusals do not follow them",

	// 20000 requests a minute where 150 a day are allowed, https://github.com/orgs/community/discussions/138918; measured:
	// https://github.com/Nathanon717/freecode/blob/main/docs/ideas/retry-handling.md.
	"github": "they are those of GitHub's own deployments, not of the caller",

	// The documented example has the ends of a minute and of a day as resets, the text a bucket that refills and tokens
	// set aside for the whole of max_completion_tokens, https://inference-docs.cerebras.ai/support/rate-limits. Measured,
	// it was back after 11 s and 32 s of 60: retry-handling.md, above.
	"cerebras": "their resets are ends of minutes and days, but the limits refill all the time",

	// Limits of a second that move with the load, and bursts are smoothed before anything is refused,
	// https://docs.together.ai/docs/rate-limits.
	"together": "the limits move with the load, and what goes beyond is often served",

	// "X-Ratelimit-Over-Limit: yes: your request was processed", https://docs.fireworks.ai/serverless/rate-limits.
	"fireworks": "the limits move with the load, and what goes beyond is often served",

	// OpenAI's fields, but the account is Hugging Face's, https://huggingface.co/docs/inference-providers.
	"huggingface": "they are those of Hugging Face with whichever provider served the request",

	// Of a group of deployments, https://github.com/BerriAI/litellm/issues/5957, and not enforced with every set-up.
	"litellm": "they are the relay's own or one deployment's, and others may serve the next request",

	// All header fields of the channel that served, https://github.com/QuantumNous/new-api/blob/main/service/http.go.
	"oneapi": "they are those of the relay's channel, and others may serve the next request",
}
