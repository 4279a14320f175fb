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
	"bytes"

	"github.com/tidwall/gjson"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
	"github.com/llmfailover/caddy-llm-failover/internal/sse"
)

// judgeAnswer says what a whole recorded answer with a success status is. It returns what to judge it by: the body,
// or of a stream the event that failed. It looks further than a running stream can, to the end and for answers that
// a filter left empty.
func judgeAnswer(route dialect.Route, stream bool, body []byte) (Finding, []byte) {
	if stream {
		return judgeStream(route.Dialect, body)
	}
	switch route.Body(body) {
	case dialect.BodyEmpty:
		return FoundEmpty, body
	case dialect.BodyFailed:
		return FoundError, body
	case dialect.BodyForeign:
		return FoundNoEnvelope, body
	case dialect.BodyCut:
		return FoundCut, body
	}
	if !holdsText(body) && filtered(body) {
		return FoundFiltered, body
	}
	return FoundNothing, body
}

func judgeStream(d dialect.Dialect, body []byte) (Finding, []byte) {
	began, content, finished := false, false, false
	var scratch []byte
	for len(body) > 0 {
		var raw []byte
		raw, body = nextEvent(body)
		event := sse.Parse(raw, scratch)
		if event.Data == nil {
			event.Data = unframed(raw)
		}
		if len(event.Data) == 0 {
			continue
		}
		began = true
		signal := d.Event(event.Name, event.Data)
		switch c := event.Data[0]; {
		case signal&dialect.Failed != 0, gjson.GetBytes(event.Data, ":exception-type").Exists(),
			bytes.HasPrefix(bytes.TrimSpace(raw), []byte("error:")):
			return FoundError, event.Data
		case c != '{' && c != '[' && signal == 0:
			return FoundNoEnvelope, event.Data
		case !content && signal&dialect.Finished != 0 && filtered(event.Data):
			return FoundFiltered, event.Data
		}
		content = content || signal&dialect.Content != 0
		if finished = finished || signal&dialect.Finished != 0; signal&dialect.Terminal != 0 {
			finished = true
			break
		}
	}
	switch {
	case !content && (finished || !began):
		return FoundEmpty, nil
	case !finished:
		return FoundCut, nil
	}
	return FoundNothing, nil
}

// nextEvent cuts the next event off a stream, or the next line off one in JSON lines. What is left at the end counts
// as an event.
func nextEvent(body []byte) (event, rest []byte) {
	if body[0] == '{' {
		line, rest, _ := bytes.Cut(body, []byte("\n"))
		return line, rest
	}
	if n := sse.Next(body); n > 0 {
		return body[:n], body[n:]
	}
	return body, nil
}

// unframed returns the JSON that comes as a line of its own, or under llama.cpp's field name `error`.
func unframed(raw []byte) []byte {
	raw = bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(raw), []byte("error:")))
	if len(raw) > 0 && raw[0] == '{' {
		return raw
	}
	return nil
}

// filtered reports whether an answer says that a safety filter ended it.
func filtered(body []byte) bool {
	s := hear(nil, body)
	for _, reason := range s.finish {
		if reason == "refusal" {
			return true
		}
	}
	for _, reasons := range [][]string{s.finish, s.codes} {
		if row := codeWords.find(codeTokens(reasons), "", 200, nil); row != nil && row.class == ContentPolicy {
			return true
		}
	}
	return false
}

// holdsText reports whether any dialect's place for an answer's content holds something.
func holdsText(body []byte) bool {
	for _, place := range []string{
		"choices.0.message.content", "choices.0.message.refusal", "choices.0.message.tool_calls", "choices.0.text",
		"candidates.0.content.parts", "content.0", "output.0",
	} {
		if v := gjson.GetBytes(body, place); v.Exists() && v.String() != "" && v.Raw != "[]" {
			return true
		}
	}
	return false
}
