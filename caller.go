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
	"strconv"
	"time"
)

// What the official SDKs, which Stainless generates, tell of themselves: how often they have tried this request
// before, and how long they will wait (in seconds; the Python ones name the read timeout apart).
const (
	fieldRetryCount  = "X-Stainless-Retry-Count"
	fieldTimeout     = "X-Stainless-Timeout"
	fieldReadTimeout = "X-Stainless-Read-Timeout"
)

// isRetry reports whether the caller itself tries a request again. Waiting is then its part: were we to wait, too, the
// waits would multiply.
func isRetry(h http.Header) bool {
	n, err := strconv.Atoi(h.Get(fieldRetryCount))
	return err == nil && n > 0
}

// patience is how long the caller says it will wait, or 0. Nothing is gained by going on after that.
func patience(h http.Header) time.Duration {
	var least time.Duration
	for _, field := range [...]string{fieldTimeout, fieldReadTimeout} {
		seconds, err := strconv.ParseFloat(h.Get(field), 64)
		if err != nil || !(seconds > 0 && seconds < maxPatience.Seconds()) {
			continue
		}
		if d := time.Duration(seconds * float64(time.Second)); least == 0 || d < least {
			least = d
		}
	}
	return least
}

// maxPatience: more than a day is no limit.
const maxPatience = 24 * time.Hour
