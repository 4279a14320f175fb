// @anthropic-ai/sdk

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { at, city, failure, run } from "./cases.mjs";

const client = (name, more) => new Anthropic({ baseURL: at(name), apiKey: "the caller's", ...more });
const hi = { model: "m", max_tokens: 100, messages: [{ role: "user", content: "hi" }] };
const tools = { ...hi, tools: [{ name: "weather", input_schema: city }] };

async function stream(name) {
  const seen = { text: "", last: "" };
  try {
    for await (const event of await client(name).messages.create({ ...hi, stream: true })) {
      if (event.type === "content_block_delta") seen.text += event.delta.text;
      seen.last = event.type;
    }
  } catch (error) {
    seen.error = error;
  }
  return seen;
}

const whole = async (name) => {
  const got = await stream(name);
  assert.equal(got.error, undefined);
  assert.deepEqual([got.text, got.last], ["hello", "message_stop"]);
};

const checkTool = (message) => {
  assert.equal(message.stop_reason, "tool_use");
  assert.deepEqual([message.content[0].name, message.content[0].input], ["weather", { city: "Oslo" }]);
};

const refused = (type, status, kind) => async (name) => {
  const e = await failure(() => client(name).messages.create({ ...hi, stream: name.endsWith("-stream") }));
  assert.ok(e instanceof type, `${e}`);
  assert.ok(e instanceof Anthropic.APIError);
  assert.deepEqual([e.status, e.error.type, e.error.error.type], [status, "error", kind]);
  assert.ok(e.error.error.message);
};

/** An error after content is an APIError with the dialect's own body. */
const brokenOff = (kind) => async (name) => {
  const got = await stream(name);
  assert.equal(got.text, "hello");
  assert.notEqual(got.last, "message_stop");
  assert.ok(got.error instanceof Anthropic.APIError, `${got.error}`);
  assert.equal(got.error.error.error.type, kind);
};

await run({
  plain: async (name) => assert.equal((await client(name).messages.create(hi)).content[0].text, "hello"),
  "plain-tool": async (name) => checkTool(await client(name).messages.create(tools)),
  stream: whole,
  "stream-cut-early": whole,
  "stream-error-early": whole,
  "stream-tool": async (name) => checkTool(await client(name).messages.stream(tools).finalMessage()),
  count: async (name) => {
    const got = await client(name).messages.countTokens({ model: "m", messages: hi.messages });
    assert.equal(got.input_tokens, 7);
  },
  limited: refused(Anthropic.RateLimitError, 429, "rate_limit_error"),
  "limited-stream": refused(Anthropic.RateLimitError, 429, "rate_limit_error"),
  broken: refused(Anthropic.InternalServerError, 500, "api_error"),
  "broken-stream": refused(Anthropic.InternalServerError, 500, "api_error"),
  bad: refused(Anthropic.BadRequestError, 400, "invalid_request_error"),
  "bad-stream": refused(Anthropic.BadRequestError, 400, "invalid_request_error"),
  credentials: refused(Anthropic.InternalServerError, 502, "api_error"),
  "credentials-stream": refused(Anthropic.InternalServerError, 502, "api_error"),
  broke: async (name) => {
    const first = await failure(() => client(name).messages.create(hi));
    assert.equal(first.status, 402);
    for (let i = 0; i < 3; i++) {
      const e = await failure(() => client(name, { maxRetries: 0 }).messages.create(hi));
      assert.ok(e instanceof Anthropic.InternalServerError);
      assert.deepEqual([e.status, e.error.error.type], [503, "overloaded_error"]);
      assert.ok(Number(e.headers.get("retry-after")) >= 1);
    }
  },
  "stream-cut-late": brokenOff("api_error"),
  "stream-error-late": brokenOff("rate_limit_error"),
});
