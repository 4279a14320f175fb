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

// The codes of vendors that number them, or give a usual name a meaning of its own. What a code's own words tell
// (AccountOverdueError, ServerOverloaded) needs no row, see codeWords.

// https://docs.bigmodel.cn/cn/faq/api-code, https://docs.z.ai/api-reference/api-code
var zhipuCodes = codeTable(
	codeRow{meaning{AuthError, ScopeKey, "the credential is not accepted"}, "1000 1001 1002 1003 1004", 0, ""},
	codeRow{meaning{AuthError, ScopeAccount, "the account is inactive or locked"}, "1110 1111 1112 1121", 0, ""},
	codeRow{meaning{BillingError, "", "arrears, or no resource package"}, "1113", 0, ""},
	codeRow{meaning{BillingError, "", "the plan has expired"}, "1309", 0, ""},
	codeRow{meaning{ServerError, "", "the upstream failed"}, "1100 1120 1230 1234 1260", 0, ""},
	codeRow{meaning{ModelUnavailable, "", "this key has no such model"}, "1211 1220 1221 1222 1311", 0, ""},
	codeRow{meaning{ContextOverflow, "", "the prompt is too long"}, "1261", 0, ""},
	codeRow{meaning{ContentPolicy, "", "refused by a safety filter"}, "1300 1301", 0, ""},
	codeRow{meaning{RateLimit, ScopeKey, "too many requests"}, "1302 1303", 0, ""},
	codeRow{meaning{RateLimit, ScopeAccount, "slowed down for unfair use"}, "1313", 0, ""},
	codeRow{meaning{Overloaded, "", "the model is out of capacity"}, "1305 1312", 0, ""},
	codeRow{meaning{QuotaExhausted, ScopeAccount, "an allowance is used up"}, "1304 1308 1310 1314 1315 1316 1317 1318 1319 1320 1321", 0, ""},
	// 1210 is a wrong parameter, and also a prompt too long; the others are wrong parameters of some kind.
	codeRow{meaning{BadRequest, "", "a parameter is wrong"}, "1212 1213 1214 1215 1231 1232 1233", 0, ""},
)

// https://help.aliyun.com/zh/model-studio/error-code
var dashscopeCodes = codeTable(
	codeRow{meaning{BillingError, ScopeModel, "the free allowance for this model is used up"}, "insufficient_quota Throttling.AllocationQuota AllocationQuota", 0, "free"},
	codeRow{meaning{QuotaExhausted, "", "a window of the plan is used up"}, "insufficient_quota Throttling.AllocationQuota", 0, "# week|month|day|hour .. quota\nquota will reset\nweekly|monthly|daily .. quota\ntoken|coding plan"},
	// Named like a bill, but it is the tokens a minute that are allocated.
	codeRow{meaning{RateLimit, "", "too many tokens a minute"}, "insufficient_quota Throttling.AllocationQuota", 0, ""},
	codeRow{meaning{RateLimit, "", "too many requests"}, "Throttling Throttling.RateQuota Throttling.BurstRate Throttling.User limit_requests LimitRequests limit_burst_rate", 0, ""},
	codeRow{meaning{BillingError, "", "arrears"}, "Arrearage PrepaidBillOverdue PostpaidBillOverdue CommodityNotPurchased", 0, ""},
	codeRow{meaning{ModelUnavailable, "", "this key has no such model"}, "Model.AccessDenied AccessDenied.Unpurchased Model.NotExist ModelNotFound", 0, ""},
	codeRow{meaning{AuthError, ScopeKey, "the credential is not accepted"}, "Workspace.AccessDenied App.AccessDenied InvalidApiKey", 0, ""},
	codeRow{meaning{BadRequest, "", "a file of the request cannot be fetched"}, "InvalidParameter.DataInspection", 0, ""},
	codeRow{meaning{ServerError, "", "the upstream failed"}, "ModelServiceFailed ModelServingError SystemError InternalError.Algo InternalError.FileUpload", 500, ""},
)

// https://www.volcengine.com/docs/82379/1299023
var arkCodes = codeTable(
	// One code, four meanings.
	codeRow{meaning{BillingError, ScopeModel, "the free trial of this model is used up"}, "QuotaExceeded", 0, "free trial"},
	codeRow{meaning{QuotaExhausted, ScopeAccount, "a window of the plan is used up"}, "QuotaExceeded AccountQuotaExceeded", 0, "quota . it will reset\ndaily|weekly|monthly\n5 hour"},
	codeRow{meaning{RateLimit, ScopeAccount, "too many tasks are waiting"}, "QuotaExceeded", 0, ""},
	codeRow{meaning{RateLimit, ScopeModel, "too many requests for this model"}, `RateLimitExceeded.FoundationModelRPMExceeded RateLimitExceeded.FoundationModelTPMExceeded
		ModelAccountRpmRateLimitExceeded ModelAccountTpmRateLimitExceeded ModelAccountIpmRateLimitExceeded`, 0, ""},
	codeRow{meaning{RateLimit, ScopeKey, "too many requests for this endpoint"}, "RateLimitExceeded.EndpointRPMExceeded RateLimitExceeded.EndpointTPMExceeded", 0, ""},
	codeRow{meaning{RateLimit, ScopeAccount, "too many requests"}, "APIAccountRpmRateLimitExceeded AccountRateLimitExceeded InflightBatchsizeExceeded", 0, ""},
	codeRow{meaning{RateLimit, ScopeKey, "traffic grew too fast"}, "RequestBurstTooFast", 0, ""},
	codeRow{meaning{ModelUnavailable, "", "this key has no such model"}, "InvalidEndpointOrModel.NotFound InvalidEndpointOrModel.ModelIDAccessDisabled UnsupportedModel ModelLoadingError", 0, ""},
)

// https://platform.minimax.io/docs/api-reference/errorcode
var minimaxCodes = codeTable(
	codeRow{meaning{ServerError, "", "the upstream failed"}, "1000 1013 1024 1033", 0, ""},
	codeRow{meaning{Timeout, "", "the upstream ran out of time"}, "1001", 0, ""},
	codeRow{meaning{RateLimit, "", "too many requests"}, "1002 1041 2045", 0, ""},
	// "token limit": of tokens a minute.
	codeRow{meaning{RateLimit, "", "too many tokens a minute"}, "1039", 0, ""},
	codeRow{meaning{AuthError, "", "the credential is not accepted"}, "1004 2049 2042", 0, ""},
	codeRow{meaning{BillingError, "", "no money left"}, "1008", 0, ""},
	codeRow{meaning{QuotaExhausted, "", "a window of the plan is used up"}, "2056", 0, ""},
	codeRow{meaning{ModelUnavailable, "", "the plan has no such model"}, "2061", 0, ""},
	codeRow{meaning{ContentPolicy, "", "refused by a safety filter"}, "1026 1027", 0, ""},
	codeRow{meaning{BadRequest, "", "the request is not understood"}, "1042", 0, ""},
	codeRow{meaning{ContextOverflow, "", "the prompt is too long"}, "2013", 0, "context window|length\ntoo long\nexceed* .. limit|max"},
	codeRow{meaning{BadRequest, "", "a parameter is wrong"}, "2013", 0, ""},
)

// https://platform.moonshot.cn/docs/api/chat
var moonshotCodes = codeTable(
	codeRow{meaning{BillingError, "", "no money left"}, "exceeded_current_quota_error", 0, ""},
	codeRow{meaning{Overloaded, "", "the upstream is out of capacity"}, "engine_overloaded_error", 0, ""},
	codeRow{meaning{ModelUnavailable, "", "this key has no such model"}, "resource_not_found_error", 0, ""},
	codeRow{meaning{AuthError, ScopeProvider, "this kind of client is not served"}, "access_terminated_error", 0, "client|clients|agent|agents"},
)

// https://cloud.baidu.com/doc/WENXINWORKSHOP/s/tlmyncueh
var qianfanCodes = codeTable(
	codeRow{meaning{ServerError, "", "the upstream failed"}, "1 2 336000 336117 337000", 0, ""},
	codeRow{meaning{Overloaded, "", "the cluster is full"}, "4 336100 336120 336200", 0, ""},
	codeRow{meaning{AuthError, "", "the credential is not accepted"}, "6 13 14 15 100 110 111 336004", 0, ""},
	codeRow{meaning{QuotaExhausted, "", "the allowance is used up"}, "17 19", 0, ""},
	codeRow{meaning{RateLimit, "", "too many requests"}, "18 336501 336502 336503 336504 336505 336507", 0, ""},
	codeRow{meaning{ContentPolicy, "", "refused by a safety filter"}, "336104 336301 336302", 0, ""},
	codeRow{meaning{ContextOverflow, "", "the prompt is too long"}, "336007 336103 336105", 0, ""},
	codeRow{meaning{BadRequest, "", "a parameter is wrong"}, "3 336001 336002 336003 336005 336006", 0, ""},
)

// https://cloud.tencent.com/document/product/1729/101851
var hunyuanCodes = codeTable(
	codeRow{meaning{Overloaded, "", "the engine is out of capacity"}, "FailedOperation.EngineServerLimitExceeded", 0, ""},
	codeRow{meaning{Timeout, "", "the engine ran out of time"}, "FailedOperation.EngineRequestTimeout", 0, ""},
	codeRow{meaning{ServerError, "", "the engine failed"}, "FailedOperation.EngineServerError InternalError", 0, ""},
	codeRow{meaning{BillingError, "", "arrears, or no package left"}, `FailedOperation.FreeResourcePackExhausted FailedOperation.ResourcePackExhausted FailedOperation.ServiceStop
		FailedOperation.ServiceStopArrears ResourceInsufficient.ChargeResourceExhausted ResourceUnavailable.InArrears ResourceUnavailable.LowBalance`, 0, ""},
	codeRow{meaning{ModelUnavailable, "", "the service is not switched on"}, "FailedOperation.ServiceNotActivated ResourceUnavailable.NotExist", 0, ""},
	codeRow{meaning{RateLimit, "", "too many requests"}, "LimitExceeded RequestLimitExceeded RequestLimitExceeded.UinLimitExceeded 2003", 0, ""},
	codeRow{meaning{ContentPolicy, "", "refused by a safety filter"}, "OperationDenied.TextIllegalDetected OperationDenied.ImageIllegalDetected", 0, ""},
	codeRow{meaning{AuthError, "", "the credential is not accepted"}, `AuthFailure AuthFailure.SignatureFailure AuthFailure.SecretIdNotFound AuthFailure.SignatureExpire AuthFailure.TokenFailure
		AuthFailure.InvalidSecretId AuthFailure.InvalidAuthorization AuthFailure.MFAFailure UnauthorizedOperation`, 0, ""},
	codeRow{meaning{BadRequest, "", "a parameter is wrong"}, "InvalidParameter InvalidParameterValue UnsupportedOperation UnknownParameter MissingParameter", 0, ""},
)

// https://docs.siliconflow.cn/cn/faqs/error-code
var siliconflowCodes = codeTable(
	codeRow{meaning{BillingError, "", "no money left"}, "30001 30011", 0, ""},
	codeRow{meaning{ModelUnavailable, "", "this key has no such model"}, "20012 30003", 0, ""},
	codeRow{meaning{Overloaded, "", "the model is out of capacity"}, "50501 50505 50603", 0, ""},
	codeRow{meaning{BadRequest, "", "a parameter is wrong"}, "20041", 0, ""},
)

// https://www.xfyun.cn/doc/spark/Web.html
var sparkCodes = codeTable(
	codeRow{meaning{ContentPolicy, "", "refused by a safety filter"}, "10013 10014 10019", 0, ""},
	codeRow{meaning{ContextOverflow, "", "the prompt is too long"}, "10907", 0, ""},
	codeRow{meaning{Overloaded, "", "the upstream is out of capacity"}, "10007 10008 10110", 0, ""},
	codeRow{meaning{AuthError, "", "the credential is not accepted"}, "10015 10016 10017 10313 10315", 0, ""},
	codeRow{meaning{BillingError, "", "no money left"}, "11210", 0, "credit|credits|balance"},
	codeRow{meaning{AuthError, "", "the application is not authorized"}, "11200", 0, "noautherror|appidnoautherror\nno auth"},
	codeRow{meaning{BillingError, "", "no permission, or the allowance is used up"}, "11200", 0, ""},
	codeRow{meaning{QuotaExhausted, "", "the day's allowance is used up"}, "11201", 0, ""},
	codeRow{meaning{RateLimit, "", "too many requests"}, "11202 11203 11210", 0, ""},
	codeRow{meaning{BadRequest, "", "the request is not understood"}, "10003 10004 10005 10163", 0, ""},
)
