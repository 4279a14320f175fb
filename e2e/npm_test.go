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

//go:build tooltests

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// oldestNode is the oldest Node.js with all that the clients need.
const oldestNode = 18

// npmReplies are the upstream's replies to each key in a case of one of the scripts in npm/, and the calls that these
// must bring about, all of a client's own retries included.
type npmReplies struct {
	k1, k2 []http.HandlerFunc
	calls  string
}

// npmResponse are the events of a response with all that the AI SDK wants to see, up to some text or to its end.
func npmResponse(text string, whole bool) []string {
	n := 0
	event := func(kind, more string) string {
		n++
		return fmt.Sprintf("event: %s\ndata: {\"type\":%q,\"sequence_number\":%d%s}", kind, kind, n-1, more)
	}
	item := `{"id":"i1","type":"message","status":"in_progress","role":"assistant","content":[]}`
	events := []string{
		event("response.created", `,"response":{"id":"r1","object":"response","created_at":1,"status":"in_progress","model":"m","error":null,"output":[]}`),
		event("response.output_item.added", `,"output_index":0,"item":`+item),
		event("response.content_part.added", `,"item_id":"i1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}`),
		event("response.output_text.delta", `,"item_id":"i1","output_index":0,"content_index":0,"logprobs":[],"delta":"`+text+`"`),
	}
	if !whole {
		return events
	}
	return append(events,
		event("response.output_text.done", `,"item_id":"i1","output_index":0,"content_index":0,"logprobs":[],"text":"`+text+`"`),
		event("response.output_item.done", `,"output_index":0,"item":`+strings.Replace(item, "in_progress", "completed", 1)),
		event("response.completed", `,"response":`+npmAnswer))
}

const npmAnswer = `{"id":"r1","object":"response","created_at":1,"status":"completed","model":"m","error":null,"incomplete_details":null,"output":[{"type":"message","id":"i1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"hello","annotations":[]}]}],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}`

// npmCases are the scripts' cases.
func npmCases() map[string]map[string]npmReplies {
	type list = []http.HandlerFunc
	failover := func(first http.HandlerFunc, second ...http.HandlerFunc) npmReplies {
		return npmReplies{list{first}, second, "k1 k2"}
	}
	both := func(reply http.HandlerFunc) npmReplies { return npmReplies{list{reply}, list{reply}, "k1 k2"} }
	alone := func(reply http.HandlerFunc) npmReplies { return npmReplies{list{reply}, list{says(500, "")}, "k1"} }

	openaiError := func(status int, kind, code string) http.HandlerFunc {
		return says(status, fmt.Sprintf(`{"error":{"message":"so it is","type":%q,"param":null,"code":%s}}`, kind, code))
	}
	anthropicError := func(status int, kind string) http.HandlerFunc {
		return says(status, fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":"so it is"},"request_id":"req_1"}`, kind))
	}
	limited := says(429, openaiLimited, "Retry-After", "30")
	limitedMessages := says(429, anthropicLimited, "Retry-After", "30")

	cases := map[string]map[string]npmReplies{
		"openai.mjs": {
			"plain":              failover(limited, says(200, openaiText)),
			"plain-tool":         failover(limited, says(200, openaiTool)),
			"stream":             failover(limited, streams(false, openaiStream...)),
			"stream-tool":        failover(limited, streams(false, openaiToolStream...)),
			"stream-cut-early":   failover(streams(true, openaiStream[0]), streams(false, openaiStream...)),
			"stream-error-early": failover(streams(false, openaiStream[0], "data: "+openaiLimited), streams(false, openaiStream...)),
			"responses":          {list{limited}, list{says(200, npmAnswer), streams(false, npmResponse("hello", true)...)}, "k1 k2 k2"},
			"embeddings":         failover(openaiError(500, "server_error", "null"), says(200, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1]}],"model":"m","usage":{"prompt_tokens":1,"total_tokens":1}}`)),
			"broke":              both(openaiError(402, "billing", `"insufficient_balance"`)),
			"stream-cut-late":    alone(streams(true, openaiStream[:3]...)),
			"stream-error-late":  alone(streams(false, append(slices.Clone(openaiStream[:3]), "data: "+openaiLimited)...)),
			"responses-cut-late": alone(streams(true, npmResponse("hello", false)...)),
		},
		"anthropic.mjs": {
			"plain":              failover(limitedMessages, says(200, anthropicText)),
			"plain-tool":         failover(limitedMessages, says(200, anthropicTool)),
			"stream":             failover(limitedMessages, streams(false, anthropicStream...)),
			"stream-tool":        failover(limitedMessages, streams(false, anthropicToolStream...)),
			"stream-cut-early":   failover(streams(true, anthropicStream[:3]...), streams(false, anthropicStream...)),
			"stream-error-early": failover(streams(false, anthropicStream[0], "event: error\ndata: "+anthropicLimited), streams(false, anthropicStream...)),
			"count":              failover(limitedMessages, says(200, `{"input_tokens":7}`)),
			"broke":              both(anthropicError(402, "billing_error")),
			"stream-cut-late":    alone(streams(true, anthropicStream[:5]...)),
			"stream-error-late":  alone(streams(false, append(slices.Clone(anthropicStream[:5]), "event: error\ndata: "+anthropicLimited)...)),
		},
		"ai.mjs": {"compatible-broke": both(openaiError(402, "billing", `"insufficient_balance"`))},
	}
	for _, way := range []string{"", "-stream"} {
		o, a := cases["openai.mjs"], cases["anthropic.mjs"]
		o["limited"+way], a["limited"+way] = both(says(429, openaiLimited)), both(says(429, anthropicLimited))
		o["broken"+way], a["broken"+way] = both(openaiError(500, "server_error", "null")), both(anthropicError(500, "api_error"))
		o["bad"+way], a["bad"+way] = alone(openaiError(400, "invalid_request_error", `"bad_thing"`)), alone(anthropicError(400, "invalid_request_error"))
		o["credentials"+way], a["credentials"+way] = both(openaiError(401, "invalid_request_error", `"invalid_api_key"`)), both(anthropicError(401, "authentication_error"))
	}
	ai := cases["ai.mjs"]
	for kind, speaks := range map[string]struct {
		of            map[string]npmReplies
		plain, stream string
	}{
		"compatible": {cases["openai.mjs"], "plain", "stream"}, "chat": {cases["openai.mjs"], "plain", "stream"},
		"responses": {cases["openai.mjs"], "responses", "responses"}, "anthropic": {cases["anthropic.mjs"], "plain", "stream"},
	} {
		for _, name := range []string{"bad", "bad-stream", "credentials", "credentials-stream"} {
			ai[kind+"-"+name] = speaks.of[name]
		}
		if kind == "responses" {
			ai[kind+"-plain"] = failover(limited, says(200, npmAnswer))
			ai[kind+"-stream"] = failover(limited, streams(false, npmResponse("hello", true)...))
			ai[kind+"-cut"] = speaks.of["responses-cut-late"]
			continue
		}
		ai[kind+"-plain"], ai[kind+"-stream"] = speaks.of["plain"], speaks.of["stream"]
		ai[kind+"-plaintool"], ai[kind+"-streamtool"] = speaks.of["plain-tool"], speaks.of["stream-tool"]
		ai[kind+"-cut"] = speaks.of["stream-cut-late"]
	}
	return cases
}

// TestNpmClients runs the clients from npm. It needs Node.js and npm, which .ci/tools installs.
func TestNpmClients(t *testing.T) {
	node := npmTool(t, "node")
	npm := npmTool(t, "npm")
	version, err := exec.Command(node, "--version").Output()
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if n, _ := strconv.Atoi(major); err != nil || n < oldestNode {
		npmMissing(t, fmt.Sprintf("the Node.js here is %s, older than %d", bytes.TrimSpace(version), oldestNode))
	}
	dir := t.TempDir() // so that nothing is left in the tree
	for _, pattern := range []string{"*.json", "*.mjs", ".npmrc"} {
		files, err := filepath.Glob(filepath.Join("npm", pattern))
		if err != nil || files == nil {
			t.Fatal(pattern, err)
		}
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	install := exec.CommandContext(t.Context(), npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	scripts := npmCases()
	for _, script := range slices.Sorted(maps.Keys(scripts)) {
		t.Run(script, func(t *testing.T) { npmRun(t, node, dir, script, scripts[script]) })
	}
}

// npmRun runs a script with a gateway that has a pool for each case.
func npmRun(t *testing.T, node, dir, script string, cases map[string]npmReplies) {
	upstreams := make(map[string]*upstream)
	var pools strings.Builder
	for name, replies := range cases {
		// A list is consumed by its upstream.
		u := newUpstream(t, map[string][]http.HandlerFunc{"k1": slices.Clone(replies.k1), "k2": slices.Clone(replies.k2)})
		upstreams[name] = u
		fmt.Fprintf(&pools, `handle_path /%s/* {
			llm_failover %s {
				pool %s
				keys {
					k1 secret-of-k1
					k2 secret-of-k2
				}
				retry {
					same_key_on model_unavailable
					backoff 5ms
				}
			}
		}
		`, name, u.URL, strings.TrimSuffix(script, ".mjs")+"-"+name)
	}
	run := exec.CommandContext(t.Context(), node, script, serveSite(t, pools.String()))
	run.Dir = dir
	var failures bytes.Buffer
	run.Stderr = &failures
	// The clients read base URLs and keys from their environment, too.
	run.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "OPENAI_") || strings.HasPrefix(v, "ANTHROPIC_") || strings.HasPrefix(v, "NODE_OPTIONS=")
	})
	out, err := run.Output()
	if err != nil {
		t.Errorf("node %s: %v\n%s", script, err, failures.String())
	}
	left := maps.Clone(cases)
	for line := range strings.Lines(string(out)) {
		var result struct{ Name, Error string }
		if err := json.Unmarshal([]byte(line), &result); err != nil {
			t.Logf("%s", line)
			continue
		}
		t.Run(result.Name, func(t *testing.T) {
			want, known := left[result.Name]
			delete(left, result.Name)
			if !known {
				t.Fatal("the upstream knows no such case")
			}
			if result.Error != "" {
				t.Error(result.Error)
			}
			upstreams[result.Name].wantCalls(t, want.calls)
		})
	}
	for name := range left {
		t.Errorf("%s has not run the case %s", script, name)
	}
	if t.Failed() && failures.Len() > 0 {
		t.Log(failures.String())
	}
}

func npmTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		npmMissing(t, fmt.Sprintf("there is no %s here", name))
	}
	return path
}

// npmMissing ends the test, which is built only where the tag tooltests says that all it needs is there.
func npmMissing(t *testing.T, what string) {
	t.Helper()
	t.Fatalf("%s, and the clients from npm cannot be tested: run .ci/tools first", what)
}

// TestNpmLock: the lock file tells no machine's own registry.
func TestNpmLock(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("npm", "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Resolved, Integrity string }
	}
	if err := json.Unmarshal(b, &lock); err != nil {
		t.Fatal(err)
	}
	for name, p := range lock.Packages {
		if name != "" && p.Integrity == "" {
			t.Errorf("%s has no integrity", name)
		}
		if p.Resolved != "" && !strings.HasPrefix(p.Resolved, "https://registry.npmjs.org/") {
			t.Errorf("%s is resolved to %s", name, p.Resolved)
		}
	}
	if len(lock.Packages) < 5 {
		t.Errorf("%d packages", len(lock.Packages))
	}
}
