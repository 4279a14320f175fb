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
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// TestValidate pins what only JSON configs can get wrong; TestCaddyfileErrors has the rest. %P is a provider that is
// in order, %K a key.
func TestValidate(t *testing.T) {
	const key = `{"name": "k1", "secret": "sk-secret-1"}`
	const provider = `{"name": "a", "base_url": "https://a.example", "keys": [` + key + `]}`

	for _, tc := range []struct{ config, want string }{
		{`{"providers": [%P]}`, ""},
		{`{"providers": [{"base_url": "https://a.example", "keys": [%K]}]}`, ""},
		{`{"providers": [%P], "select": {}, "retry": {}, "circuit": {}, "halt": {}, "timeouts": {}, "limits": {}}`, ""},
		{`{"providers": [%P], "retry": {"same_key": [0], "jitter": 0, "max_retries": 0}}`, ""},
		{`{"providers": [%P], "retry": {"min_attempt": 1000000}, "timeouts": {"deadline": 2000000}}`, ""},
		// one name in two providers is no conflict
		{`{"providers": [%P, {"name": "b", "base_url": "https://b.example", "keys": [%K]}]}`, ""},
		// a key inside the account that bears its name
		{`{"providers": [{"base_url": "https://a.example", "account": "k1", "keys": [%K, {"name": "k2", "secret": "x"}]}]}`, ""},

		{`{}`, "no provider: a pool needs at least one, with a base_url and a key"},
		{`{"providers": [null]}`, "provider 1 of 1 has no name"},
		{`{"providers": [%P, {"base_url": "https://b.example", "keys": [%K]}]}`, "provider 2 of 2 has no name"},
		{`{"providers": [%P, %P]}`, `two providers are named "a"`},
		{`{"providers": [{"name": "a b"}]}`, `provider "a b": provider name "a b" may not hold spaces, slashes or braces`},
		{`{"providers": [%P], "pool": "."}`, `pool name "." cannot stand in the paths of the admin API`},
		{`{"providers": [{"name": ".."}]}`, `provider "..": provider name ".." cannot stand in the paths of the admin API`},
		{`{"providers": [{"name": "a", "base_url": "https://a.example", "keys": [{"name": ".", "secret": "sk-secret-1"}]}]}`, `provider "a": key name "." cannot stand in the paths of the admin API`},
		{`{"providers": [{"name": "..a", "base_url": "https://a.example", "keys": [%K]}]}`, ""},
		{`{"providers": [{"name": "a"}]}`, `provider "a": base_url "" must be http:// or https://, a host, and perhaps a path`},
		{`{"providers": [{"name": "a", "base_url": "https://a.example"}]}`, `provider "a": no keys: it needs at least one, keys { <name> <secret> }`},
		{`{"providers": [{"name": "a", "base_url": "https://a.example", "keys": [null]}]}`, `provider "a": key 1 of 1 has no name`},
		{`{"providers": [{"name": "a", "base_url": "https://a.example", "keys": [{"secret": "sk-secret-1"}]}]}`, `provider "a": a key has no name`},
		{`{"providers": [{"name": "a", "base_url": "https://a.example", "keys": [{"name": "k1"}]}]}`, `provider "a": key "k1" has no secret`},
		{`{"providers": [{"name": "a", "base_url": "https://a.example", "keys": [%K, %K]}]}`, `provider "a": two keys are named "k1"`},
		{`{"providers": [{"name": "a", "base_url": "https://a.example", "keys": [{"name": "k1", "secret": "sk-secret-1", "weight": -1}]}]}`, `provider "a": key "k1": weight -1 must be 1 or more`},
		{`{"providers": [{"name": "a", "base_url": "https://a.example", "auth": {}, "keys": [%K]}]}`, `provider "a": auth: unknown ""; it may be bearer, x-api-key, x-goog-api-key, api-key or header`},
		{`{"providers": [{"name": "a", "base_url": "https://a.example", "account": "k1", "keys": [{"name": "k1", "secret": "sk-secret-1", "account": "own"}, {"name": "k2", "secret": "x"}]}]}`, `provider "a": account "k1" bears the name of a key that does not belong to it; rename one of the two`},
		{`{"providers": [%P], "select": {"placeholder": "{http.request.host}"}}`, "select: only sticky takes a placeholder"},
		{`{"providers": [%P], "retry": {"same_key": [1, -1]}}`, "retry: same_key -1ns must be above zero"},
		{`{"providers": [%P], "retry": {"max_wait": -1}}`, "retry: max_wait -1ns must be above zero"},
		{`{"providers": [%P], "retry": {"jitter": 100.5}}`, "retry: jitter 100.5 must be 0 to 100 percent"},
		{`{"providers": [%P], "retry": {"max_retries": -1}}`, "retry: max_retries -1 must be 0 or more"},
		{`{"providers": [%P], "circuit": {"threshold": -1}}`, "circuit: threshold -1 must be 1 or more"},
		{`{"providers": [%P], "circuit": {"cooldown": -1}}`, "circuit: cooldown -1ns must be above zero"},
		{`{"providers": [%P], "halt": {"recheck": -1}}`, "halt: recheck -1ns must be above zero"},
		{`{"providers": [%P], "timeouts": {"idle": -1}}`, "timeouts: idle -1ns must be above zero"},
		{`{"providers": [%P], "limits": {"body": -1}}`, "limits: body -1 must be 1 byte or more"},
		{`{"providers": [%P], "retry": {"min_attempt": 3000000}, "timeouts": {"deadline": 2000000}}`, "timeouts: deadline 2ms is shorter than min_attempt 3ms of retry, so no attempt could ever start"},
	} {
		config := strings.NewReplacer("%P", provider, "%K", key).Replace(tc.config)
		h := new(Handler)
		if err := caddy.StrictUnmarshalJSON(json.RawMessage(config), h); err != nil {
			t.Fatalf("%s: %v", config, err)
		}
		got := ""
		if err := h.validate(); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s\n got: %s\nwant: %s", config, got, tc.want)
		}
	}
}
