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
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// traced asks a pool under a tracer's span, and returns the spans that have ended.
func traced(t *testing.T, p *pool, path, body string, sampled bool) []sdktrace.ReadOnlySpan {
	t.Helper()
	ended := tracetest.NewSpanRecorder()
	sampler := sdktrace.AlwaysSample()
	if !sampled {
		sampler = sdktrace.NeverSample()
	}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended), sdktrace.WithSampler(sampler))
	ctx, parent := tracers.Tracer("test").Start(context.Background(), "parent")
	defer parent.End()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)).WithContext(ctx)
	func() {
		defer func() { _ = recover() }() // a cut transfer
		if err := p.serve(httptest.NewRecorder(), inCaddy(r)); err != nil {
			t.Error(err)
		}
	}()
	return ended.Ended()
}

func attributesOf(s sdktrace.ReadOnlySpan) map[attribute.Key]attribute.Value {
	of := make(map[attribute.Key]attribute.Value)
	for _, a := range s.Attributes() {
		of[a.Key] = a.Value
	}
	return of
}

// tracedPool is a pool of two keys whose upstream is a real one.
func tracedPool(t *testing.T, a *upstream) *pool {
	t.Helper()
	h := &Handler{Pool: strings.ToLower(t.Name()), Providers: []*Provider{{Name: "a", BaseURL: a.URL, Vendor: "openai"}}, Retry: &Retry{Backoff: 1}}
	for _, name := range []string{"k1", "k2"} {
		h.Providers[0].Keys = append(h.Providers[0].Keys, &Key{Name: name, Secret: secretOf(name)})
	}
	p, cleanup := testHandler(t, h, http.DefaultTransport, func() float64 { return 0 })
	t.Cleanup(cleanup)
	return p
}

// TestTracing: a client span for each attempt, which ends with its answer, and which the upstream may continue.
func TestTracing(t *testing.T) {
	a := newUpstream(t).on("k1", fails(500, "oops"))
	p := tracedPool(t, a)
	spans := traced(t, p, "/v1/chat/completions", chat("gpt-x"), true)
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	calls := a.asked("")
	for i, s := range spans {
		of := attributesOf(s)
		if s.Name() != "chat gpt-x" || of["gen_ai.request.model"].AsString() != "gpt-x" || of["gen_ai.provider.name"].AsString() != "openai" ||
			of["llm_failover.attempt"].AsInt64() != int64(i+1) || of["llm_failover.key"].AsString() != []string{"k1", "k2"}[i] {
			t.Errorf("span %d: %s %v", i, s.Name(), s.Attributes())
		}
		want := "00-" + s.SpanContext().TraceID().String() + "-" + s.SpanContext().SpanID().String() + "-01"
		if got := calls[i].header.Get("Traceparent"); got != want {
			t.Errorf("traceparent %d: %q, want %q", i, got, want)
		}
	}
	if of := attributesOf(spans[0]); of["error.type"].AsString() != "server_error" || of["http.response.status_code"].AsInt64() != 500 || spans[0].Status().Code != otelcodes.Error {
		t.Errorf("the failed one: %v %v", spans[0].Attributes(), spans[0].Status())
	}
	if of := attributesOf(spans[1]); of["error.type"].AsString() != "" || of["http.response.status_code"].AsInt64() != 200 || spans[1].Status().Code == otelcodes.Error {
		t.Errorf("the good one: %v %v", spans[1].Attributes(), spans[1].Status())
	}
	for _, s := range spans {
		for _, v := range attributesOf(s) {
			leaks.look("a span", fmt.Append(nil, v.AsInterface()))
		}
	}
}

// TestTracingOfStreams: the span lasts as long as the stream, and says how it failed, and what it took.
func TestTracingOfStreams(t *testing.T) {
	f := &families[0]
	a := newUpstream(t).on("k1", events(f.begin, f.text("x"), cut{}),
		events(f.begin, f.text("x"), "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n", f.end))
	p := tracedPool(t, a)
	spans := traced(t, p, "/v1/chat/completions", chat("gpt-x", streaming), true)
	if len(spans) != 1 || attributesOf(spans[0])["error.type"].AsString() != "server_error" {
		t.Errorf("%v", spans)
	}
	spans = traced(t, p, "/v1/chat/completions", chat("gpt-x", streaming), true)
	if of := attributesOf(spans[0]); of["gen_ai.usage.input_tokens"].AsInt64() != 3 || of["gen_ai.usage.output_tokens"].AsInt64() != 4 {
		t.Errorf("%v", of)
	}
}

// TestTracingNamesProviders: the conventions' names are for vendors that are known here.
func TestTracingNamesProviders(t *testing.T) {
	for vendor := range providerNames {
		if !slices.Contains(Vendors, vendor) {
			t.Errorf("there is no vendor %q", vendor)
		}
	}
	a := newUpstream(t)
	p := tracedPool(t, a)
	p.providers[0].vendor = "gemini"
	spans := traced(t, p, "/v1/chat/completions", chat("m"), true)
	if got := attributesOf(spans[0])["gen_ai.provider.name"].AsString(); got != "gcp.gemini" {
		t.Errorf("it is called %s", got)
	}
}

// TestTracingNamesOperations: where the conventions have no name for one the span is called by the method.
func TestTracingNamesOperations(t *testing.T) {
	a := newUpstream(t).on("k1", says(200, `{"object":"list","data":[]}`))
	p := tracedPool(t, a)
	for path, want := range map[string][2]string{
		"/v1/chat/completions": {"chat", "chat m"}, "/v1/embeddings": {"embeddings", "embeddings m"}, "/v1/rerank": {"", "POST m"},
	} {
		s := traced(t, p, path, chat("m"), true)[0]
		if got := attributesOf(s)["gen_ai.operation.name"].AsString(); got != want[0] || s.Name() != want[1] {
			t.Errorf("%s: %q, %q", path, got, s.Name())
		}
	}
}

// TestTracingOfAnyModel: a name that no exporter could encode would cost others their spans.
func TestTracingOfAnyModel(t *testing.T) {
	a := newUpstream(t)
	p := tracedPool(t, a)
	for model, want := range map[string]string{
		"a\xff\xfeb":                      "a\uFFFDb",
		strings.Repeat("x", 10_000):       strings.Repeat("x", maxModelName),
		strings.Repeat("ä", maxModelName): strings.Repeat("ä", maxModelName/2),
	} {
		spans := traced(t, p, "/v1/chat/completions", `{"model":"`+model+`","messages":[]}`, true)
		if got := attributesOf(spans[0])["gen_ai.request.model"].AsString(); got != want || spans[0].Name() != "chat "+want {
			t.Errorf("%.20q is shown as %.20q", model, got)
		}
	}
}

// TestNoTracing: where nothing is recorded there are no spans, and the caller's traceparent goes on.
func TestNoTracing(t *testing.T) {
	a := newUpstream(t)
	if spans := traced(t, tracedPool(t, a), "/v1/chat/completions", chat("m"), false); len(spans) != 0 {
		t.Errorf("%v", spans)
	}
}
