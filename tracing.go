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
	"cmp"
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/llmfailover/caddy-llm-failover/internal/dialect"
)

// scopeName names this package to tracers.
const scopeName = "github.com/llmfailover/caddy-llm-failover"

// operations are the dialects' in the semantic conventions for generative AI
// (https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/).
var operations = map[dialect.Dialect]string{
	dialect.Chat: "chat", dialect.Responses: "chat", dialect.Messages: "chat", dialect.Gemini: "generate_content",
}

// providerNames are the conventions' names of vendors that have another one here
// (https://opentelemetry.io/docs/specs/semconv/registry/attributes/gen-ai/#gen-ai-provider-name).
var providerNames = map[string]string{
	"azure": "azure.ai.openai", "bedrock": "aws.bedrock", "gemini": "gcp.gemini", "mistral": "mistral_ai", "vertex": "gcp.vertex_ai", "xai": "x_ai",
}

// attemptSpan is the client span of an attempt, under the one that Caddy's tracing handler began. It is nil where that traces
// nothing, and then does nothing.
type attemptSpan struct{ oteltrace.Span }

// beginSpan begins the span of an attempt; n counts the request's attempts from 1.
func beginSpan(ctx context.Context, in *inbound, v *visit, n int) (context.Context, *attemptSpan) {
	parent := oteltrace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, nil
	}
	operation := operationOf(in)
	name := cmp.Or(operation, in.Method)
	model := shownModel(v.model)
	if model != "" {
		name += " " + model
	}
	ctx, s := parent.TracerProvider().Tracer(scopeName).Start(ctx, name, oteltrace.WithSpanKind(oteltrace.SpanKindClient), oteltrace.WithAttributes(
		attribute.String("gen_ai.request.model", model),
		attribute.String("gen_ai.provider.name", cmp.Or(providerNames[v.provider.vendor], v.provider.vendor)),
		attribute.String("server.address", v.provider.base.Hostname()),
		attribute.String("llm_failover.pool", v.provider.pool.name),
		attribute.String("llm_failover.provider", v.provider.name),
		attribute.String("llm_failover.key", v.name),
		attribute.Int("llm_failover.attempt", n),
	))
	if operation != "" {
		s.SetAttributes(attribute.String("gen_ai.operation.name", operation))
	}
	return ctx, &attemptSpan{s}
}

// operationOf is what a request asks for, if the conventions have a name for it.
func operationOf(in *inbound) string {
	switch path := in.URL.Path; {
	case in.route.Generates:
		return operations[in.route.Dialect]
	case strings.HasSuffix(path, "/embeddings"), strings.HasSuffix(path, ":embedContent"), strings.HasSuffix(path, ":batchEmbedContents"):
		return "embeddings"
	}
	return ""
}

// shownModel is a model's name as exporters can take it: one that is no UTF-8 would spoil whole batches of spans, callers
// may send any length, and a part of a request would be kept as long as its span.
func shownModel(name string) string {
	return strings.Clone(strings.ToValidUTF8(name[:min(len(name), maxModelName)], "\uFFFD"))
}

// inject has the upstream continue the trace from the attempt.
func (s *attemptSpan) inject(ctx context.Context, h http.Header) {
	if s != nil {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

// judged tells what came of the attempt.
func (s *attemptSpan) judged(v Verdict, status int) {
	if s == nil {
		return
	}
	if status > 0 {
		s.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if v.Failed() {
		s.SetAttributes(attribute.String("error.type", string(v.Class)))
		s.SetStatus(otelcodes.Error, v.Reason)
	}
}

// used tells how many tokens the answer took.
func (s *attemptSpan) used(u dialect.Usage) {
	if s != nil && u != (dialect.Usage{}) {
		s.SetAttributes(attribute.Int64("gen_ai.usage.input_tokens", u.Input), attribute.Int64("gen_ai.usage.output_tokens", u.Output))
	}
}

// end ends the span, with the last byte of the answer.
func (s *attemptSpan) end() {
	if s != nil {
		s.End()
	}
}
