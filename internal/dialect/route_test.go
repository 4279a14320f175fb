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

package dialect

import (
	"testing"
)

func TestRouteOf(t *testing.T) {
	const generates, repeatable, stream = 1, 2, 4
	for _, tc := range []struct {
		method, path string
		d            Dialect
		flags        int
		model        string
	}{
		{"POST", "/v1/chat/completions", Chat, generates | repeatable, ""},
		{"POST", "/chat/completions", Chat, generates | repeatable, ""},
		{"POST", "//api/v3/chat/completions/", Chat, generates | repeatable, ""},
		{"POST", "/api/paas/v4/chat/completions", Chat, generates | repeatable, ""},
		{"POST", "/openai/deployments/x/chat/completions", Chat, generates | repeatable, ""},
		{"POST", "/openai/deployments/responses/chat/completions", Chat, generates | repeatable, ""},
		{"POST", "/models/chat/completions", Chat, generates | repeatable, ""},
		{"POST", "/v1beta/openai/chat/completions", Chat, generates | repeatable, ""},
		{"POST", "/v1beta1/projects/p/locations/l/endpoints/openapi/chat/completions", Chat, generates | repeatable, ""},
		{"POST", "/v1/completions", Chat, generates | repeatable, ""},
		{"GET", "/v1/chat/completions", Chat, repeatable, ""},
		{"POST", "/v1/chat/completions/id", Chat, 0, ""},
		{"GET", "/v1/chat/completions/id/messages", Chat, repeatable, ""},
		{"POST", "/v1/responses", Responses, generates | repeatable, ""},
		{"POST", "/openai/v1/responses/", Responses, generates | repeatable, ""},
		{"GET", "/v1/responses/resp_1", Responses, repeatable, ""},
		{"GET", "/v1/responses/resp_1/input_items", Responses, repeatable, ""},
		{"POST", "/v1/responses/resp_1/cancel", Responses, 0, ""},
		{"POST", "/v1/responses/input_tokens", Responses, repeatable, ""},
		{"POST", "/v1/responses/compact", Responses, repeatable, ""},
		{"DELETE", "/v1/responses/resp_1", Responses, repeatable, ""},
		{"POST", "/v1/messages", Messages, generates | repeatable, ""},
		{"POST", "/anthropic/v1/messages", Messages, generates | repeatable, ""},
		{"POST", "/v1/messages/count_tokens", Messages, repeatable, ""},
		{"POST", "/v1/messages/batches", Messages, 0, ""},
		{"GET", "/v1/messages/batches/b/results", Messages, repeatable, ""},
		{"POST", "/v1/threads/t/messages", Chat, 0, ""},
		{"GET", "/v1/threads/t/messages", Chat, repeatable, ""},
		{"POST", "/v1beta/models/gemini-2.5-pro:generateContent", Gemini, generates | repeatable, "gemini-2.5-pro"},
		{"POST", "/v1/models/gemini-2.5-pro:streamGenerateContent", Gemini, generates | repeatable | stream, "gemini-2.5-pro"},
		{"POST", "/models/m%2Fx%3AgenerateContent", Gemini, generates | repeatable, "m/x"},
		{"POST", "/v1/projects/p/locations/l/publishers/google/models/m:generateContent", Gemini, generates | repeatable, "m"},
		{"POST", "/v1beta/models/m:countTokens", Gemini, repeatable, "m"},
		{"POST", "/v1beta/models/m:embedContent", Gemini, repeatable, "m"},
		{"POST", "/v1beta/models/m:batchEmbedContents", Gemini, repeatable, "m"},
		{"POST", "/v1beta/models/imagen:predict", Gemini, 0, "imagen"},
		{"POST", "/v1beta/models/veo:predictLongRunning", Gemini, 0, "veo"},
		{"GET", "/v1beta/models", Gemini, repeatable, ""},
		{"GET", "/v1alpha/models/m", Gemini, repeatable, "m"},
		{"GET", "/v1beta/models/m/operations/o", Gemini, repeatable, ""},
		{"POST", "/v1beta/cachedContents", Gemini, 0, ""},
		{"POST", "/upload/v1beta/files", Gemini, 0, ""},
		{"GET", "/v1beta/openai/models", Chat, repeatable, ""},
		{"GET", "/v1/models", Chat, repeatable, ""},
		{"HEAD", "/v1/models/m", Chat, repeatable, ""},
		{"DELETE", "/v1/models/ft:gpt-4o:org:x:id", Chat, repeatable, ""},
		{"POST", "/v1/embeddings", Chat, repeatable, ""},
		{"POST", "/models/embeddings", Chat, repeatable, ""},
		{"POST", "/v1/moderations", Chat, repeatable, ""},
		{"POST", "/v1/rerank", Chat, repeatable, ""},
		{"POST", "/tokenize", Chat, repeatable, ""},
		{"POST", "/api/v3/tokenization", Chat, repeatable, ""},
		{"POST", "/v1/audio/transcriptions", Chat, repeatable, ""},
		{"POST", "/v1/audio/translations", Chat, repeatable, ""},
		{"POST", "/v1/audio/speech", Chat, repeatable, ""},
		{"POST", "/v1/audio/voices", Chat, 0, ""},
		{"POST", "/v1/images/generations", Chat, 0, ""},
		{"POST", "/v1/batches", Chat, 0, ""},
		{"POST", "/v1/files", Chat, 0, ""},
		{"POST", "/v1/uploads/u/parts", Chat, 0, ""},
		{"POST", "/v1/fine_tuning/jobs", Chat, 0, ""},
		{"POST", "/v1/videos", Chat, 0, ""},
		{"POST", "/v1/threads/t/runs", Chat, 0, ""},
		{"POST", "/v1/unheard/of", Chat, 0, ""},
		{"PUT", "/v1/chat/completions", Chat, 0, ""},
		{"PATCH", "/v1/x", Chat, 0, ""},
		{"DELETE", "/v1/files/f", Chat, repeatable, ""},
		{"OPTIONS", "/v1/images/generations", Chat, repeatable, ""},
		{"GET", "/", Chat, repeatable, ""},
		{"POST", "", Chat, 0, ""},
	} {
		got := RouteOf(tc.method, tc.path)
		flags := 0
		for flag, set := range map[int]bool{generates: got.Generates, repeatable: got.Repeatable, stream: got.Stream} {
			if set {
				flags |= flag
			}
		}
		if got.Dialect != tc.d || flags != tc.flags || got.Model != tc.model {
			t.Errorf("%s %s: %+v", tc.method, tc.path, got)
		}
	}
}

func TestModelAt(t *testing.T) {
	for path, want := range map[string]string{
		"/v1beta/models/gemini%20x:generateContent": "gemini%20x",
		"/models/a:b:generateContent":               "a:b",
		"/models/m%3agenerateContent":               "m",
		"/v1beta/models/%zz:generateContent":        "%zz",
	} {
		at := RouteOf("POST", path).ModelAt
		if got := path[at[0]:at[1]]; got != want {
			t.Errorf("%s: %q", path, got)
		}
	}
}

func FuzzRouteOf(f *testing.F) {
	f.Add("POST", "/v1beta/models/m%3Ax:generateContent/")
	f.Add("GET", "/v1beta/models//m/")
	f.Fuzz(func(t *testing.T, method, path string) {
		rt := RouteOf(method, path)
		if at := rt.ModelAt; at[0] < 0 || at[0] > at[1] || at[1] > len(path) || (rt.Model != "") != (at[1] > at[0]) {
			t.Fatalf("%q %q: %+v", method, path, rt)
		}
	})
}
