// The AI SDK, with its providers for OpenAI's chat completions and responses, OpenAI-compatible servers and Anthropic.

import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, jsonSchema, streamText, tool } from "ai";
import { at, city, failure, run } from "./cases.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const apiKey = "the caller's";
const models = {
  compatible: (name) => createOpenAICompatible({ name: "gateway", baseURL: `${at(name)}/v1`, apiKey })("m"),
  chat: (name) => createOpenAI({ baseURL: `${at(name)}/v1`, apiKey }).chat("m"),
  responses: (name) => createOpenAI({ baseURL: `${at(name)}/v1`, apiKey }).responses("m"),
  anthropic: (name) => createAnthropic({ baseURL: `${at(name)}/v1`, apiKey })("m"),
};
const model = (name) => models[name.split("-")[0]](name);
const tools = { weather: tool({ inputSchema: jsonSchema(city) }) };

async function stream(name, more) {
  const seen = { text: "", errors: [], calls: [], finish: "" };
  const result = streamText({ model: model(name), prompt: "hi", onError: () => {}, ...more });
  try {
    for await (const part of result.fullStream) {
      if (part.type === "text-delta") seen.text += part.text;
      if (part.type === "tool-call") seen.calls.push(part);
      if (part.type === "error") seen.errors.push(part.error);
      if (part.type === "finish") seen.finish = part.finishReason;
    }
  } catch (error) {
    seen.errors.push(error); // so it tells of a transfer that was cut
  }
  return seen;
}

const plain = async (name) => {
  const got = await generateText({ model: model(name), prompt: "hi" });
  assert.deepEqual([got.text, got.finishReason], ["hello", "stop"]);
};

const streamed = async (name) => {
  const got = await stream(name);
  assert.deepEqual([got.errors, got.text, got.finish], [[], "hello", "stop"]);
};

const checkTools = (calls) => {
  assert.deepEqual(calls.map((c) => [c.toolName, c.input]), [["weather", { city: "Oslo" }]]);
};

const plainTool = async (name) => checkTools((await generateText({ model: model(name), prompt: "hi", tools })).toolCalls);
const streamTool = async (name) => {
  const got = await stream(name, { tools });
  assert.deepEqual(got.errors, []);
  checkTools(got.calls);
};

/** A refusal is the SDK's own typed error. */
const refused = (status, word, retryable) => async (name) => {
  let e;
  if (name.endsWith("-stream")) {
    const got = await stream(name, { maxRetries: 0 });
    assert.equal(got.text, "");
    [e] = got.errors;
  } else {
    e = await failure(() => generateText({ model: model(name), prompt: "hi", maxRetries: 0 }));
  }
  assert.ok(APICallError.isInstance(e), `${e}`);
  assert.deepEqual([e.statusCode, e.isRetryable], [status, retryable]);
  assert.match(e.responseBody, word);
};

const brokenOff = async (name) => {
  const got = await stream(name);
  assert.equal(got.text, "hello");
  assert.notEqual(got.errors.length, 0);
  assert.notEqual(got.finish, "stop");
};

const cases = {};
for (const kind of Object.keys(models)) {
  cases[`${kind}-plain`] = plain;
  cases[`${kind}-stream`] = streamed;
  cases[`${kind}-bad`] = cases[`${kind}-bad-stream`] = refused(400, /invalid_request_error/, false);
  cases[`${kind}-credentials`] = cases[`${kind}-credentials-stream`] = refused(502, /credential/, true);
  cases[`${kind}-cut`] = brokenOff;
  if (kind !== "responses") {
    cases[`${kind}-plaintool`] = plainTool;
    cases[`${kind}-streamtool`] = streamTool;
  }
}
// It asks again by itself where it thinks that this may help, whatever x-should-retry says. While the keys are halted,
// that does not reach the upstream.
cases["compatible-broke"] = async (name) => {
  const first = await failure(() => generateText({ model: model(name), prompt: "hi" }));
  assert.ok(APICallError.isInstance(first) && first.statusCode === 402, `${first}`);
  const e = await failure(() => generateText({ model: model(name), prompt: "hi", maxRetries: 0 }));
  assert.deepEqual([e.statusCode, JSON.parse(e.responseBody).error.code], [503, "all_halted"]);
};
await run(cases);
