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
	"net/http"
	"net/url"
	"strings"
)

// Route is what a request's method and path say about it.
type Route struct {
	Dialect Dialect

	// Generates: answers hold generated content and are judged for it.
	Generates bool

	// JSON: answers are JSON, if they are no stream, and judged for being that. All others are judged for errors only.
	JSON bool

	// Repeatable: to send it again does no harm even if the first one was carried out. (Whether the body asks for
	// a background job, which is not, the path cannot tell.)
	Repeatable bool

	// Stream: the path itself asks for a stream.
	Stream bool

	// Model is the model that the path names, unescaped, and ModelAt where it stands in the escaped path.
	Model   string
	ModelAt [2]int
}

// RouteOf reads a request's method and escaped path. The version segment may be any, or missing.
func RouteOf(method, escapedPath string) Route {
	rt := Route{Dialect: Chat}
	post := method == http.MethodPost
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodDelete:
		rt.Repeatable = true
	}
	if post && rt.verb(escapedPath) {
		return rt
	}

	// The first known word decides: what stands before it is where the API is mounted, what stands after it is
	// below it (/threads/{id}/messages is no matter of Anthropic's).
	var beta, compatible bool
	for path := escapedPath; path != ""; {
		var word, next string
		word, path = segment(path)
		next, after := segment(path)
		last := next == ""
		switch {
		case word == "deployments": // Azure: the next one is a name
			path = after
		case word == "chat" && next == "completions":
			rt.set(Chat, post && after == "", post && after == "")
			return rt
		case word == "completions":
			rt.set(Chat, post && last, post && last)
			return rt
		case word == "responses":
			rt.set(Responses, post && last, post && (last || next == "input_tokens" || next == "compact"))
			rt.JSON = method != http.MethodDelete
			return rt
		case word == "messages":
			rt.set(Messages, post && last, post && (last || next == "count_tokens"))
			rt.JSON = last || next == "count_tokens" // the results of batches are lines of it
			return rt
		case word == "audio":
			rt.set(Chat, false, post && (next == "transcriptions" || next == "translations" || next == "speech"))
			return rt
		case isPure(word):
			rt.set(Chat, false, post)
			rt.JSON = true
			return rt
		case word == "threads" || word == "assistants" || word == "conversations":
			return rt
		case word == "models" && method == http.MethodGet:
			rt.JSON = true
		case word == "openai" || word == "openapi":
			compatible = true
		case strings.HasPrefix(word, "v1beta") || strings.HasPrefix(word, "v1alpha"):
			beta = true
		}
	}
	if beta && !compatible {
		rt.Dialect = Gemini
		if at, rest, ok := modelIn(escapedPath); ok && !strings.Contains(rest, "/") {
			rt.name(rest, at)
		}
	}
	return rt
}

func (rt *Route) set(d Dialect, generates, repeatable bool) {
	rt.Dialect, rt.Generates = d, generates
	rt.Repeatable = rt.Repeatable || repeatable
}

// verb reads Gemini's paths of the form …/models/{model}:{verb}.
func (rt *Route) verb(path string) bool {
	at, rest, ok := modelIn(path)
	if !ok {
		return false
	}
	model, verb := rest, ""
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		model, verb = rest[:i], rest[i+1:]
	} else if i := strings.LastIndex(strings.ToUpper(rest), "%3A"); i >= 0 {
		model, verb = rest[:i], rest[i+3:]
	}
	if model == "" || verb == "" || strings.Contains(verb, "/") {
		return false
	}
	rt.Dialect = Gemini
	rt.name(model, at)
	switch verb {
	case "generateContent":
		rt.Generates, rt.Repeatable = true, true
	case "streamGenerateContent":
		rt.Generates, rt.Repeatable, rt.Stream = true, true, true
	case "countTokens", "embedContent", "batchEmbedContents":
		rt.Repeatable, rt.JSON = true, true
	}
	return true
}

func (rt *Route) name(escaped string, at int) {
	model, err := url.PathUnescape(escaped)
	if err != nil {
		model = escaped
	}
	rt.Model, rt.ModelAt = model, [2]int{at, at + len(escaped)}
}

// modelIn returns what stands after the last /models/ of a path, and where it begins.
func modelIn(path string) (at int, rest string, ok bool) {
	const before = "/models/"
	i := strings.LastIndex(path, before)
	if i < 0 {
		return 0, "", false
	}
	rest = strings.TrimRight(path[i+len(before):], "/")
	return i + len(before), rest, rest != ""
}

// segment cuts the first segment off a path; empty ones are passed over.
func segment(path string) (word, rest string) {
	word, rest, _ = strings.Cut(strings.TrimLeft(path, "/"), "/")
	return word, strings.TrimLeft(rest, "/")
}

// isPure reports whether a POST to this resource only computes something and leaves nothing behind.
func isPure(word string) bool {
	switch word {
	case "embeddings", "embed", "moderations", "rerank", "reranks", "score", "count_tokens":
		return true
	}
	return strings.HasPrefix(word, "tokeni") || strings.HasPrefix(word, "detokeni")
}
