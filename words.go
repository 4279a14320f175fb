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

import "net/http"

// wordRow says what the words of a message mean. It speaks in the statuses that `in` names, or in all.
type wordRow struct {
	meaning
	in         func(status int) bool
	phrases    string // see phrase
	substrings string // the same in scripts that put no spaces between words
}

// words is a table of wordRows; the row that stands first decides.
type words struct {
	rows   []wordRow
	phrase phraseTable
}

func wordTable(rows ...wordRow) *words {
	t := &words{rows: rows}
	for _, row := range rows {
		t.phrase.add(row.phrases, row.substrings)
	}
	return t
}

// callersFault is where a refusal is of the request itself.
func callersFault(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge || status == http.StatusUnprocessableEntity
}

// find returns the first row that is found in the tokens (or the text they are from) and speaks in this status.
func (t *words) find(tokens []string, text string, status int, may func(*wordRow) bool) *wordRow {
	row := t.phrase.find(tokens, text, func(row int) bool {
		r := &t.rows[row]
		return (r.in == nil || r.in(status)) && (may == nil || may(r))
	})
	if row < 0 {
		return nil
	}
	return &t.rows[row]
}

// sentences are the words of messages, in the order in which they outweigh each other: money, policy, limits that
// name their window, size, capacity, other limits, models, credentials. Each phrase is narrow on purpose: a message
// in which none occurs is judged by its status.
var sentences = wordTable(
	// What the caller's own tool server answered is the caller's matter.
	wordRow{meaning{BadRequest, "", "a tool server of the caller's failed"}, only(400, 422, 424), `
		mcp server`, ""},
	wordRow{meaning{RateLimit, "", "too many requests or tokens a minute"}, nil, `
		quota of .. per minute|second`, ""},

	// Money.
	wordRow{meaning{BillingError, ScopeRequest, "this request costs more than is left"}, nil, `
		can only afford
		only afford #`, ""},
	wordRow{meaning{QuotaExhausted, ScopeAccount, "the key's own limit for now is reached"}, nil, `
		key limit exceeded .. daily|weekly|monthly limit`, "今日 当日 当天 明日 小时额度 本周额度 本月额度 周额度 月额度"},
	wordRow{meaning{BillingError, ScopeModel, "the spending stop on this model is reached"}, nil, `
		spend|spending|budget limit|cap|stop .. model
		model .. spend|spending|budget limit|cap|stop`, ""},
	wordRow{meaning{BillingError, ScopeModel, "the free allowance for this model is used up"}, nil, `
		exhausted .. free trial quota
		free trial quota .. exhausted
		free tier of the model .. exhausted
		extra|usage usage|credits is|are required for
		free|model .. requires .. pro subscription
		model requires a pro`, "免费额度已用完 免费额度已耗尽 免费额度用尽"},
	wordRow{meaning{BillingError, "", "no money left"}, nil, `
		insufficient .. balance|balances|credit|credits|fund|funds|money|quota
		balance .. insufficient|low|negative|empty|overdue|exhausted|depleted|zero|not
		balance .. too low
		account balance .. top
		negative balance
		low balance
		no balance
		not enough .. balance|credit|credits|funds|quota|money|points
		quota .. not enough
		do not|don't have enough|sufficient .. credit|credits|balance|funds|quota
		credit|credits .. exhausted|expired|depleted|insufficient|run|ran|low|empty
		credit|credits .. used up
		credit limit .. exceeded|reached
		out of .. credit|credits|funds|money|extra
		no .. credit|credits left|remaining|available
		no more credits
		have any .. credit|credits|balance|funds
		zero credits
		balance is #
		used .. all .. credits
		used up .. credits|points|balance
		credits have|has been consumed
		exceed* .. credits
		exhausted .. credits|balance
		requires|require|requiring|need|needs|purchase|buy .. credits
		requires .. paid|positive balance
		add .. more .. credits|funds
		add credits|funds
		key limit exceeded
		limit exceeded .. total limit
		prepayment|prepaid .. credits|balance|depleted|required`, "余额不足 余额已 账户余额 欠费 充值 额度不足 额度已用尽 额度已用完 额度已耗尽 预扣费额度失败 预扣额度失败 资源包 费用不足 点数不足 積分不足 積分已 积分已 积分耗尽 积分用完 点数已 点数用 算力点不足 计费账户 积分不足 残高が不足 残高不足 잔액 недостаточно"},
	wordRow{meaning{BillingError, "", "the bill is not paid"}, nil, `
		arrears
		arrearage
		overdue
		unpaid .. invoice|invoices|bill|balance
		past .. invoice|invoices due
		past due
		good standing
		payment .. required|failed|declined|overdue
		payment method .. required|missing|expired|invalid
		add|enter|provide .. payment method
		valid payment
		check payment status
		credit card
		please recharge|top
		recharge .. account|balance|continue|order
		top up your|and|account
		check your .. billing details
		billing details
		billing .. not .. active|enabled|set
		billing .. inactive|disabled|enabled
		enable billing
		requires billing`, "停机 拖欠 未支付 付款"},
	wordRow{meaning{BillingError, "", "the spending limit is reached"}, nil, `
		billing .. limit .. reached|exceeded
		spend|spending|cost|budget limit|cap ... reached|exceeded|raise|hit
		reached|exceeded|hit|over ... spend|spending|cost|budget limit|cap|allowed
		budget .. exceeded|exhausted
		exceededbudget
		exceededtokenbudget
		max budget
		budgetexceeded*
		exceeded .. budget
		spending limit`, "消费限额 预算"},
	wordRow{meaning{BillingError, "", "the plan does not pay for this"}, nil, `
		out of|draw|draws .. extra usage
		no extra usage
		extra usage .. required|disabled|exhausted|depleted|not
		subscription .. expired|ended|cancelled|canceled|lapsed|inactive|required|frozen|suspended|paused
		plan|package .. expired|ended|lapsed
		trial .. expired|ended
		not|no|without .. valid .. subscription
		no|not .. active subscription|plan|membership
		not .. active .. subscription
		active .. subscription .. required|needed
		subscription|plan .. not|doesn't include .. api
		not .. subscribed`, "套餐已过期 套餐已到期 套餐过期 未订阅 订阅已过期 试用已"},

	// A ban for what was sent before is not about this request.
	wordRow{meaning{AuthError, ScopeAccount, "the account is closed for a violation"}, nil, `
		disabled|suspended|banned|terminated|blocked in|for this|your account|organization|project .. violat*
		access|account|organization|organisation|workspace|project|user|key was|is|has .. terminated|suspended|banned|deactivated|disabled|locked|revoked .. violat*|abuse`,
		"账户存在违规 账号存在违规 账户存违规 账号存违规 账户因违规 账号因违规 违规被封"},

	// Policy.
	wordRow{meaning{ContentPolicy, "", "refused by a safety filter"}, nil, `
		violat* ... policy|policies|guidelines|terms|rules|standards
		policy violation
		usage policy|policies|guidelines
		content .. policy|moderation|filter|filtered|filtering|filters|violat*|blocked|risk|unsafe|inappropriate|sensitive|prohibited|harmful|safety
		content management policy
		content ... blocked
		contentpolicyviolation*
		safety system|filter|filters|policy|reasons|check|checks|settings|guidelines|classifier
		inappropriate content
		sensitive content|information|words|word
		harmful content
		unsafe content
		prohibited content|use
		explicit content
		prompt|input|request|content|output|message|image .. flagged
		flagged .. as|by|for|content
		considered high risk
		high risk
		blocked input|prompt|content
		input|output|prompt|content|response blocked|rejected by .. policy|filter|safety|moderation|guardrail
		prompt|response|output was|is|has blocked|filtered
		guardrail .. intervened|blocked|triggered
		requires moderation
		moderation .. blocked|failed|flagged|system|rejected
		responsible ai
		new sensitive
		jailbreak
		nsfw
		copyright*  .. content|material
		legal reasons`, "敏感 违规 违规内容 不安全 内容安全 安全审核 不合规 违禁 涉政 审核不通过 未通过审核 审核未通过 内容风险 有害 不適切 不当"},

	// Limits that name their window. They stand before size because "too many tokens per day" is not a long prompt.
	wordRow{meaning{QuotaExhausted, "", "the allowance of a day or longer is used up"}, notServerFault, `
		per day|week|month
		perday
		permonth
		tpd|rpd
		calls|requests|tokens|messages|queries|generations day|month|week
		daily|weekly|monthly ... limit|limits|quota|allowance|allocation|cap|usage|requests|maximum
		limit|limits|quota .. daily|weekly|monthly
		userbymodelbyday
		# day|days|month .. limit|limits|quota|window
		# hour|hours|h .. usage|session|quota|limit|limits|window
		five hour
		usage|limit|quota .. # hour|hours|day|days
		limit .. for .. today
		for today
		usage limit|limits|cap .. reached|exceeded|hit
		reached|exceeded|hit|exhausted .. usage|session|plan limit|limits|quota|cap
		usage window
		usage limit
		session limit|limits
		free usage
		free quota
		free allocation
		allowance
		quota refresh|reset|resets
		quota will|is|was|has .. reset|exhausted|depleted|used|replenished
		out of .. quota
		subscription quota
		exhausted your capacity
		exhausted your .. quota|allowance|limit
		used|exhausted|consumed .. all|entire|up .. quota|allowance|allocation|limit
		quota .. used up
		quota .. exhausted|depleted
		plan limit|limits .. reached|exceeded`, "使用上限 每日 每天 每月 每周 当日 今日 当天 日限额 月限额 周限额 限额将 配额已用 配额耗尽 配额已 用量上限 本周使用 本月使用 套餐用量 套餐额度 每日の 一日の 1日あたり 일일 дневной"},
	wordRow{meaning{RateLimit, "", "too many requests or tokens a minute"}, nil, `
		per min|minute|minutes|second|sec|hour
		hourly
		perminute
		calls|requests|tokens min|minute|second
		tpm|rpm|qpm|qps|rps|itpm|otpm|tps
		quota exceeded for aiplatform
		# per # exceeded|s
		# # s|seconds exceeded`, "每分钟 每秒"},

	// The upstream broke; what it calls the error then is a matter of luck.
	wordRow{meaning{ServerError, ScopeKey, "the engine is broken"}, nil, `
		background loop has errored
		enginecore
		enginedeaderror
		engine .. dead|died|crashed|terminated
		engine loop .. not|has
		cuda error|out
		asyncenginedead*
		runner process .. terminated|crashed|died|exited
		model|worker|backend|server .. has|have|was crashed
		channel error
		failed to call a function
		failed to generate json`, ""},

	// Size.
	wordRow{meaning{ContextOverflow, "", "the request is too long"}, unless(414, 431), `
		context length|window|size|limit|budget|overflow
		payload size .. exceed*
		need|needs|requires # tokens of context
		need|needs|requires # context tokens
		fit .. kv cache
		max kv size
		prompt|input|inputs|request|messages length .. exceed*
		contextwindowexceeded*
		prompt|input|inputs|request|messages|conversation|text|message|content|payload|entity|query .. too long|large
		too long for .. model
		token|tokens count|counts .. exceed*
		token|tokens .. exceed* .. maximum|max|limit|allowed|model|context
		number of .. tokens .. exceed*|greater|larger|more
		exceed* .. maximum|max|model|model's|allowed .. token|tokens|length|context|sequence|characters
		exceed* .. token limit
		less|fewer than # tokens|characters
		exceeds the limit of # tokens
		maximum|max prompt|input|sequence .. length|tokens|size
		maximum number of .. input tokens
		maximum number of tokens
		max seq len
		max sequence length
		maximum length|tokens .. # .. but
		input length .. exceed*|should|must
		range of input length
		inputs|input tokens .. must|should|exceed*|cannot
		longer than .. model|maximum|context|limit
		too many .. input tokens
		too many tokens in|for|total|requested
		too many tokens .. # #
		tokens in request more than
		reduce the|your .. length|prompt|messages|input|context
		reduce your prompt
		shorten your|the .. prompt|input|messages|conversation
		string too long
		tokens to keep from the initial prompt
		cannot exceed # .. tokens
		total number of tokens .. cannot
		prompt contains .. tokens .. max*|limit
		requested token count exceeds`, "上下文长度 超出最大长度 超过最大长度 超长 输入过长 内容过长 文本过长 长度超 输入长度 超过最大 超出最大 超出模型 超过模型 token数超 tokens超 上下文超 最大上下文 コンテキスト長 長すぎ 깁니다"},

	// Capacity.
	wordRow{meaning{ProviderUnavailable, "", "nobody is there to answer"}, nil, `
		no available model provider
		no healthy upstream
		no available server
		reset reason .. connection|connect failure|timeout
		delayed connect error
		connect error ... connection refused
		no live upstreams`, ""},
	wordRow{meaning{ProviderUnavailable, "", "nobody is there to answer"}, only(502, 503, 504), `
		connection refused
		connection attempts failed
		name resolution failed
		peer from .. balancer`, ""},
	wordRow{meaning{Timeout, "", "the upstream ran out of time"}, only(200, 500, 502, 503, 504), `
		request|operation|upstream|connection|stream|read|gateway|model .. timeout
		timeouterror
		timed out
		timed out in
		time out
		deadline exceeded
		deadline .. expired
		request timeout`, "请求超时 超时 タイムアウト"},
	wordRow{meaning{Overloaded, "", "the upstream is out of capacity"}, nil, `
		overload*
		no|insufficient|at|over|exceeded|limited|full|out .. capacity
		capacity .. exceeded|exhausted|constraint*|reached|limit|limits|available|unavailable|temporarily
		not enough .. capacity|resources|workers|replicas
		too busy
		is busy
		server|service|system|model|engine|network|currently busy
		high|heavy|excessive|peak|increased traffic|demand|load|volume|usage|pressure
		heavy|high concurren* load
		queue .. full|exceeded|long|limit
		maximum pending requests
		worker .. limit reached
		no .. worker|workers|instance|instances|replica|replicas|slot|slots|gpu|gpus .. available
		unable to handle additional|more
		cannot handle .. more|additional requests
		receiving|getting|seeing too many requests
		rate limited upstream
		upstream .. rate limit*|limited|throttl*
		alternative .. providers
		cooling down
		reset reason overflow
		no deployments available
		no available account|accounts
		no accounts available
		accounts .. unavailable|exhausted
		no healthy deployment*
		slots are .. busy|full
		all slots`, "没有可用账号 无可用账号 没有可用账户 无可用账户 过载 负载 饱和 访问量过大 繁忙 拥挤 超过限额 算力不足 容量 高峰 服务忙 排队 流量过多 混雑 混み合って 과부하 перегружен"},

	// How much one request may hold is no matter of how many there are.
	wordRow{meaning{BadRequest, ScopeRequest, "too many of something in one request"}, callersFault, `
		too many .. in|per|for request|batch|call|input
		too many .. in this|the|a|one|your|single request|batch|call|input
		too many .. request .. maximum|limit|at most|up to`, ""},

	// Other limits. "Quota" in a 5xx may be the trouble of a quota service.
	wordRow{meaning{RateLimit, "", "too many requests"}, nil, `
		rate|ratelimit limit|limits|limited|limiting|limiter|exceeded
		ratelimit*
		requests rate
		request rate|frequency
		rate increased
		rate of requests
		too many requests|connections|calls|attempts
		too many .. requests|connections|calls|attempts
		too many tokens
		too many concurrent
		throttl*
		concurren* .. limit|limits|exceed*|reached|maximum|max|high
		max|maximum .. concurren*|parallel
		max|maximum parallel request
		parallel request limit
		request limit|limits .. reached|exceeded
		requests limit .. reached|exceeded
		exceed* .. request limit
		slow down
		too frequent*
		too fast
		too quickly
		requests .. exceeded
		request burst
		token limit reached
		back off`, "频率 频繁 限流 限速 并发 请求过多 请求太快 请求太多 速率 速度限制 流控 次数过多 过快 リクエストが多すぎ レート制限 많습니다 слишком"},
	wordRow{meaning{QuotaExhausted, "", "an allowance is used up"}, paidAndNoServerFault, `
		quota .. exceeded|reached|limit|insufficient
		exceed* .. quota
		reached .. quota
		over quota
		out of quota`, "配额 限额 额度 クォータ"},

	// Models. "X is not supported with this model" is about X.
	wordRow{meaning{ModelUnavailable, "", "this key has no such model"}, nil, `
		model|models|deployment|engine ... not exist|exists
		model|models|deployment|engine|endpoint ... not found
		model|models ... doesn't exist
		model|models .. is|are|was not available|supported|accessible|found|deployed|ready|loaded|enabled|activated|allowed|authorized|permitted|valid|recognized
		model|models .. isn't available|supported|accessible|loaded
		model|models .. not|cannot|can't .. be found|loaded
		model|deployment .. is|has|was .. decommissioned|deprecated|retired|removed|archived|sunset|discontinued|shut|disabled|offline|unavailable|end|loading
		model .. unavailable
		model .. currently loading
		model .. requires more system memory
		model .. too large to be loaded
		model .. not .. been .. enabled|activated|opened
		model identifier is invalid
		model not ready
		model use case details
		model is not
		loading model
		no models loaded
		model .. unloaded
		model ... gated
		failed|unable to load .. model
		verified to .. model
		unknown|invalid|unsupported|unrecognized|nonexistent model|models|deployment
		invalid model name
		not a valid model
		no such model
		no .. access .. model|models
		no available channel
		no endpoints
		no allowed providers
		unable to access .. model
		model .. requires .. terms|agreement|approval
		model .. not|isn't .. accessible
		no .. provider|providers available|found .. model
		not|cannot|don't|doesn't|denied|unauthorized .. access .. model|models
		not allowed|permitted|authorized|entitled to .. model|models
		no permission .. model
		access .. model .. denied|restricted|forbidden
		access to .. model .. requires|is|not
		does not include access
		not activated|opened|enabled|open .. model
		does not work with the specified model
		on demand throughput
		not a chat model
		could not find .. model
		model service is unavailable
		not found for account
		degraded function
		end of life
		model|models|deployment|engine ... is|are|was no longer available|supported|served|offered|accessible
		engine .. is|has|was .. decommissioned|deprecated|retired|removed|discontinued
		no such deployment|engine|checkpoint
		no deployment|deployments|endpoint|endpoints|provider found|supported|available
		no available endpoint|endpoints
		not a supported model
		model not support
		model ... not servable
		model .. requires|require|needs .. subscription|plan|tier`, "模型不存在 不存在该模型 价格未配置 无权访问模型 无可用渠道 未开通 模型未 没有该模型 不支持的模型 不支持该模型 模型已下线 模型不可用 无权使用 暂不支持该模型 模型已 无此模型 モデルが存在しません モデルが見つかりません"},

	// A refusal that is about a model is not about the credential, and not about the address.
	wordRow{meaning{ModelUnavailable, "", "this key has no such model"}, only(404, 410), `
		model|deployment|checkpoint`, "模型"},
	wordRow{meaning{ModelUnavailable, "", "this key has no such model"}, only(401, 403), `
		model .. blocked|forbidden|permission*|access|allowed|enabled|enable|restricted|entitle*|available
		permission*|access|allowed|blocked|entitle* .. model|models
		plan|subscription|tier not|doesn't include|cover .. model
		model .. not included
		cannot|can't use .. model
		model .. requires|require|needs .. plan|tier|subscription`, "模型"},

	// Credentials.
	wordRow{meaning{AuthError, ScopeProvider, "this place or client is not served"}, nil, `
		country|region|territory|location .. not|isn't .. supported|available|allowed
		not|isn't|unavailable .. supported|available|allowed|in .. country|region|territory|location
		unsupported country|region|location|territory
		your ip|address .. blocked|banned|not|denied|restricted
		ip|address .. not .. allowed|authorized|whitelist*|allowlist*
		ip .. blocked|banned
		ip .. not .. allow list|lists
		network address .. blocked|banned|not
		denied from .. ip
		virtual network|firewall
		check your network
		not allow .. current client
		only available for coding|agents`, "地区不 区域不 不在服务区 ip地址 ip不在 不支持该地区"},
	wordRow{meaning{AuthError, ScopeKey, "the credential may not do this"}, nil, `
		insufficient permission|permissions|scope|scopes
		missing .. scope|scopes
		personal access token|tokens
		api key|keys is|are not supported|accepted|allowed
		credential|credentials|token|key .. only .. authorized|allowed|valid
		restricted api key`, ""},
	wordRow{meaning{AuthError, ScopeAccount, "the account is closed to us"}, nil, `
		organization|organisation|org|account|workspace|tenant|project|team ... disabled|restricted|suspended|banned|locked|terminated|deactivated|blocked|closed|frozen|inactive
		organization|organisation|account|project .. denied access
		consumer .. suspended
		not .. allowed for this|your organization|organisation|account|workspace
		your account|organization|organisation|workspace|project is not authorized|allowed|permitted|entitled
		has not been used in project
		user .. banned|blocked|suspended`, "账户已被锁定 账号已被 账户已被 用户已被封禁 账号被 封禁 账户异常 账号异常 账户处于"},
	wordRow{meaning{AuthError, ScopeKey, "the credential is not accepted"}, nil, `
		api|access|subscription|secret|authentication key|keys .. invalid|incorrect|expired|missing|not|revoked|disabled|wrong|required|deleted|inactive
		apikey .. invalid|incorrect|expired|missing|not|required
		invalid|incorrect|bad|wrong|missing|expired|malformed|revoked|illegal ... api|access|subscription|secret key
		invalid|incorrect|bad|wrong|missing|expired|malformed|revoked apikey|token|credential|credentials|authentication|authorization|signature|bearer
		invalid x api key
		invalid .. access|security|auth|bearer|oauth|oauth2|jwt|iam token
		no api key|credentials
		no auth credentials
		no authorization|authentication .. header|token|provided|found
		provide .. api key
		token .. is|has|was .. expired|invalid|revoked|missing
		token .. not valid|found|recognized
		token expired|revoked|invalid
		unauthorized
		unauthenticated
		authentication .. fail*|error|required|invalid
		authorization .. fail*|required|missing
		authenticationerror
		not authenticated
		credentials .. invalid|expired|not|incorrect
		credential|credentials|token|key|signature .. could not be validated
		signature expired|mismatch
		login fail*`, "令牌已过期 令牌无效 无效的令牌 无效令牌 令牌状态不可用 令牌已禁用 令牌不 身份验证失败 鉴权失败 认证失败 验证不正确 密钥无效 密钥不正确 密钥错误 无效的密钥 密钥已 无效的api 无效api key无效 key不 key错误 未提供令牌 token无效 token已过期 签名错误 apiキー 認証 無効な 인증"},

	// What only an answer without a status needs.
	wordRow{meaning{BadRequest, "", "the request is not understood"}, only(200), `
		validation failed|error
		invalid request|parameter|parameters|argument|arguments|input|value|json|params|format
		unsupported .. parameter|value|field|type|reasoning
		unknown parameter|field
		missing .. required
		required parameter
		is required
		malformed
		bad request
		not supported`, "参数错误 参数不合法 请求参数"},
)

// mistakes are words that only a request at fault is answered with. What else such a message says may be the names
// of the caller's own tools and fields.
var mistakes = wordTable(wordRow{phrases: `
	unknown|unrecognized|unrecognised|unexpected|unsupported|invalid parameter|argument|arguments|field|property|attribute|keyword|name|type|schema
	unrecognized request argument
	invalid json|schema|function|tool
	schema for function
	function|tool name
	parse .. json|body
	json body|payload|schema
	invalid value at
	missing|required parameter|field|property
	extra inputs
	field required
	validation error|errors|failed
	should match pattern
	does not match the pattern
	deserialize`})
