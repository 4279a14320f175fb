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
	"maps"
	"slices"
	"strings"
)

// generic is the vendor of hosts that are not known: only what means the same everywhere is read from its answers.
const generic = "generic"

// vendor is what is known of one vendor: how to recognise it, and the codes that mean something else, or nothing,
// when others send them.
type vendor struct {
	hosts    string // of its API; a leading dot stands for any subdomain
	names    string // other names for it
	codes    *codes
	words    *words          // wordings too common to judge others by
	statuses map[int]meaning // statuses that nobody else sends for this
	silent   map[int]meaning // what a status without a body means
}

// Vendors lists the vendors whose error codes are known.
var Vendors = slices.Sorted(maps.Keys(vendors))

// vendorOf returns the vendor that answers at a host (which may have a port), or generic.
func vendorOf(host string) string {
	host = strings.ToLower(host)
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	if v, ok := byHost[host]; ok {
		return v
	}
	for rest := host; ; {
		_, after, found := strings.Cut(rest, ".")
		if !found {
			break
		}
		if v, ok := byHost["."+after]; ok {
			return v
		}
		rest = after
	}
	// Their hosts bear the region inside the name.
	switch {
	case strings.HasPrefix(host, "bedrock") && strings.HasSuffix(host, ".amazonaws.com"):
		return "bedrock"
	case strings.HasSuffix(host, "-aiplatform.googleapis.com"):
		return "vertex"
	}
	return generic
}

// vendorNamed returns the vendor that goes by a name, or generic.
func vendorNamed(name string) string {
	name = strings.ToLower(name)
	if _, ok := vendors[name]; ok {
		return name
	}
	for v, known := range vendors {
		if slices.Contains(strings.Fields(known.names), name) {
			return v
		}
	}
	return generic
}

var byHost = func() map[string]string {
	hosts := make(map[string]string)
	for name, v := range vendors {
		for host := range strings.FieldsSeq(v.hosts) {
			hosts[host] = name
		}
	}
	return hosts
}()

var vendors = map[string]vendor{
	generic: {},

	"openai":    {hosts: "api.openai.com chatgpt.com .api.openai.com", names: "openai-codex codex"},
	"azure":     {hosts: ".openai.azure.com .services.ai.azure.com .cognitiveservices.azure.com .models.ai.azure.com", names: "azure-openai"},
	"anthropic": {hosts: "api.anthropic.com", names: "claude"},
	"gemini":    {hosts: "generativelanguage.googleapis.com cloudcode-pa.googleapis.com", names: "google gemini-code-assist"},
	"deepseek":  {hosts: "api.deepseek.com"},
	"xai":       {hosts: "api.x.ai .x.ai", names: "grok"},

	// Dynamic shared quota: the region is full, not the project's allowance.
	// https://cloud.google.com/vertex-ai/generative-ai/docs/error-code-429
	"vertex": {
		hosts: "aiplatform.googleapis.com .aiplatform.googleapis.com", names: "google-vertex vertex-ai",
		words: wordTable(wordRow{meaning{Overloaded, "", "the shared capacity of the region is used up"}, only(429), `
			resource exhausted . please try again
			resource exhausted please try again`, ""}, wordRow{meaning{RateLimit, ScopeModel, "too many requests for this model"}, only(429), `
			online prediction .. quota exceeded`, ""}),
	},

	"bedrock": {
		names: "aws amazon-bedrock",
		codes: codeTable(
			codeRow{meaning{ModelUnavailable, "", "this key has no such model"}, "ResourceNotFoundException", 0, ""},
			codeRow{meaning{ModelUnavailable, "", "this key has no such model"}, "AccessDeniedException", 0, "access to .. model\nspecified model"},
			codeRow{meaning{Overloaded, "", "the upstream is out of capacity"}, "ServiceUnavailableException", 0, ""},
		),
	},

	"groq": {
		hosts:    "api.groq.com",
		words:    wordTable(wordRow{meaning{Overloaded, "", "overload or maintenance"}, only(503), "service unavailable", ""}),
		statuses: map[int]meaning{498: {Overloaded, "", "the flex tier is out of capacity"}},
	},
	"cohere": {
		hosts:    "api.cohere.com api.cohere.ai",
		statuses: map[int]meaning{498: {ContentPolicy, "", "refused by a safety filter"}},
	},
	"cerebras": {
		hosts:  "api.cerebras.ai",
		silent: map[int]meaning{400: {ContextOverflow, "", "a prompt too long is refused without a word"}},
	},
	"mistral": {
		hosts: "api.mistral.ai codestral.mistral.ai",
		codes: codeTable(
			codeRow{meaning{RateLimit, "", "too many requests"}, "1300", 0, ""},
			codeRow{meaning{Overloaded, "", "the tier is out of capacity"}, "3505", 0, ""},
		),
	},
	"openrouter": {hosts: "openrouter.ai .openrouter.ai"},
	"together":   {hosts: "api.together.xyz api.together.ai"},
	"fireworks":  {hosts: "api.fireworks.ai"},
	"perplexity": {hosts: "api.perplexity.ai"},
	"nvidia":     {hosts: "integrate.api.nvidia.com .api.nvidia.com", names: "nvidia-nim nim"},
	"replicate":  {hosts: "api.replicate.com"},
	"huggingface": {
		hosts: "api-inference.huggingface.co router.huggingface.co .endpoints.huggingface.cloud .huggingface.co", names: "tgi hf",
	},
	"cloudflare": {
		hosts: "api.cloudflare.com gateway.ai.cloudflare.com", names: "cloudflare-workers-ai workers-ai",
		// https://developers.cloudflare.com/workers-ai/platform/errors/
		codes: codeTable(
			codeRow{meaning{QuotaExhausted, "", "the daily free allocation is used up"}, "3036 4006", 0, ""},
			codeRow{meaning{Overloaded, "", "the upstream is out of capacity"}, "3040", 0, ""},
			codeRow{meaning{Timeout, "", "the upstream ran out of time"}, "3007 3046", 0, ""},
			codeRow{meaning{ContextOverflow, "", "the request is too long"}, "3006 5021", 0, ""},
			codeRow{meaning{ModelUnavailable, "", "this key has no such model"}, "5007 5016 5018 3042 3041 3023", 0, ""},
			codeRow{meaning{AuthError, "", "the credential is not accepted"}, "10000 9109 9106 9103 1000 1001 2009", 0, ""},
			codeRow{meaning{RateLimit, "", "too many requests"}, "971 10429", 0, ""},
			codeRow{meaning{ServerError, "", "the upstream failed"}, "3008 3028", 0, ""},
		),
	},
	"github": {
		hosts: "models.github.ai models.inference.ai.azure.com api.githubcopilot.com .githubcopilot.com", names: "github-models github-copilot copilot",
		codes: codeTable(
			codeRow{meaning{RateLimit, ScopeModel, "too many requests for this model"}, "user_model_rate_limited", 0, ""},
			codeRow{meaning{QuotaExhausted, ScopeAccount, "the plan's requests are used up"}, "quota_exceeded", 0, ""},
		),
	},

	// Local servers and relays: their answers name what they mean.
	"ollama":   {names: ""},
	"vllm":     {names: "sglang"},
	"llamacpp": {names: "llama.cpp llama-cpp"},
	"lmstudio": {names: "lm-studio"},
	"litellm":  {names: "litellm-proxy"},
	"oneapi":   {names: "one-api new-api newapi"},

	"zhipu":       {hosts: "open.bigmodel.cn api.z.ai .z.ai .bigmodel.cn", names: "zai glm bigmodel", codes: zhipuCodes},
	"dashscope":   {hosts: "dashscope.aliyuncs.com dashscope-intl.aliyuncs.com dashscope-us.aliyuncs.com .dashscope.aliyuncs.com coding.dashscope.aliyuncs.com", names: "qwen alibaba aliyun bailian", codes: dashscopeCodes},
	"ark":         {hosts: ".volces.com .volcengineapi.com .bytepluses.com", names: "volcengine doubao byteplus", codes: arkCodes},
	"minimax":     {hosts: "api.minimax.chat api.minimaxi.com api.minimax.io", codes: minimaxCodes},
	"moonshot":    {hosts: "api.moonshot.cn api.moonshot.ai api.kimi.com", names: "kimi kimi-code", codes: moonshotCodes},
	"qianfan":     {hosts: "qianfan.baidubce.com aip.baidubce.com .baidubce.com", names: "baidu ernie", codes: qianfanCodes},
	"hunyuan":     {hosts: "api.hunyuan.cloud.tencent.com hunyuan.tencentcloudapi.com .lkeap.cloud.tencent.com", names: "tencent", codes: hunyuanCodes},
	"siliconflow": {hosts: "api.siliconflow.cn api.siliconflow.com", codes: siliconflowCodes},
	"spark":       {hosts: "spark-api-open.xf-yun.com .xf-yun.com", names: "iflytek xfyun", codes: sparkCodes},
}
