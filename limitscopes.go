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

// limitScopes tell whom a limit holds, from its codes and its message.
var limitScopes = wordTable(
	wordRow{meaning{scope: ScopeModel}, nil, `
		specific to this model
		for|on|of|to this model
		for|of model
		for the .. model
		for .. and model
		org .. model
		requests to .. for .. in
		per model
		by model
		foundation model
		base model
		model rate|rpm|tpm|account
		model .. rate limit*|limited
		userbymodelby*
		reached for .. in organization
		large for .. in organization
		limit for .. in organization
		capacity on this model`, "该模型 对于模型 此模型"},
	wordRow{meaning{scope: ScopeKey}, nil, `
		associated endpoint
		for|of this|your|the api key
		limit for your organization ... of # .. per minute|hour|day|second
		limit for your organization ... of # # .. per minute|hour|day|second`, ""},
	wordRow{meaning{scope: ScopeAccount}, nil, `
		account's rate|limit|quota
		organization|account|team|user max|maximum
		max|maximum organization|account|team|user
		organization|organization's|organisation|org|team|team's|workspace|account|tenant|project|user|customer rate|rpm|tpm|tpd|rpd|limit|limits|level|wide|quota|request|concurren*
		user global
		userby*|userconcurrent*
		free models per
		limit* .. for|of your|this|the organization|organisation|account|team|workspace|project
		exceeded organization|account|team|workspace|project
		requests for|from this|your|the organization|organisation|account|team|workspace|project|tenant
		limit reached for organization|organisation|account|team|workspace|project|tenant
		organization|organisation|account|team|workspace|tenant has reached|exceeded|hit
		across .. keys|organization|account|team|workspace
		shared .. keys|organization|account|team
		all .. api keys`, "账户 账号 用户级 组织"},
)
