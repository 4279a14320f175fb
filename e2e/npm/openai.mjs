// openai

import assert from "node:assert/strict";
import OpenAI from "openai";
import { at, city, failure, run } from "./cases.mjs";

const client = (name, more) => new OpenAI({ baseURL: `${at(name)}/v1`, apiKey: "the caller's", ...more });
const hi = { model: "m", messages: [{ role: "user", content: "hi" }] };
const tools = { ...hi, tools: [{ type: "function", function: { name: "weather", parameters: city } }] };

async function stream(name, body = hi) {
  const seen = { text: "", finish: null, chunks: 0 };
  try {
    for await (const chunk of await client(name).chat.completions.create({ ...body, stream: true })) {
      seen.chunks++;
      seen.text += chunk.choices[0]?.delta?.content ?? "";
      seen.finish = chunk.choices[0]?.finish_reason ?? seen.finish;
    }
  } catch (error) {
    seen.error = error;
  }
  return seen;
}

const whole = async (name) => {
  const got = await stream(name);
  assert.equal(got.error, undefined);
  assert.deepEqual([got.text, got.finish], ["hello", "stop"]);
};

const checkTool = (message) => {
  assert.equal(message.tool_calls.length, 1);
  const call = message.tool_calls[0].function;
  assert.deepEqual([call.name, JSON.parse(call.arguments)], ["weather", { city: "Oslo" }]);
};

/** A refusal is the client's own typed error, with whichever call. */
const refused = (type, status, code) => async (name) => {
  const e = await failure(() => client(name).chat.completions.create({ ...hi, stream: name.endsWith("-stream") }));
  assert.ok(e instanceof type, `${e}`);
  assert.ok(e instanceof OpenAI.APIError);
  assert.deepEqual([e.status, e.code], [status, code]);
  assert.ok(e.error.message && e.error.type, JSON.stringify(e.error));
};

await run({
  plain: async (name) => {
    const got = await client(name).chat.completions.create(hi);
    assert.equal(got.choices[0].message.content, "hello");
  },
  "plain-tool": async (name) => checkTool((await client(name).chat.completions.create(tools)).choices[0].message),
  stream: whole,
  "stream-cut-early": whole,
  "stream-error-early": whole,
  "stream-tool": async (name) => {
    const final = await client(name).chat.completions.stream(tools).finalChatCompletion();
    checkTool(final.choices[0].message);
    assert.equal(final.choices[0].finish_reason, "tool_calls");
  },
  responses: async (name) => {
    const ask = { model: "m", input: "hi" };
    assert.equal((await client(name).responses.create(ask)).output_text, "hello");
    let text = "", last = "";
    for await (const event of await client(name).responses.create({ ...ask, stream: true })) {
      if (event.type === "response.output_text.delta") text += event.delta;
      last = event.type;
    }
    assert.deepEqual([text, last], ["hello", "response.completed"]);
  },
  embeddings: async (name) => {
    const got = await client(name).embeddings.create({ model: "m", input: "hi", encoding_format: "float" });
    assert.deepEqual(got.data[0].embedding, [0.5, -1]);
  },
  limited: refused(OpenAI.RateLimitError, 429, "rate_limit_exceeded"),
  "limited-stream": refused(OpenAI.RateLimitError, 429, "rate_limit_exceeded"),
  broken: refused(OpenAI.InternalServerError, 500, null),
  "broken-stream": refused(OpenAI.InternalServerError, 500, null),
  bad: refused(OpenAI.BadRequestError, 400, "bad_thing"),
  "bad-stream": refused(OpenAI.BadRequestError, 400, "bad_thing"),
  credentials: refused(OpenAI.InternalServerError, 502, "upstream_credentials"),
  "credentials-stream": refused(OpenAI.InternalServerError, 502, "upstream_credentials"),
  broke: async (name) => {
    const first = await failure(() => client(name).chat.completions.create(hi));
    assert.equal(first.status, 402);
    for (let i = 0; i < 3; i++) {
      // A refusal of our own says when to come back: without retries the client tells us so at once.
      const e = await failure(() => client(name, { maxRetries: 0 }).chat.completions.create(hi));
      assert.ok(e instanceof OpenAI.InternalServerError);
      assert.deepEqual([e.status, e.code], [503, "all_halted"]);
      assert.ok(Number(e.headers.get("retry-after")) >= 1);
    }
  },
  "stream-cut-late": async (name) => {
    const got = await stream(name);
    assert.deepEqual([got.text, got.finish], ["hello", null]);
    assert.ok(got.error instanceof OpenAI.APIError, `${got.error}`);
    assert.equal(got.error.code, "stream_failed");
  },
  "stream-error-late": async (name) => {
    const got = await stream(name);
    assert.deepEqual([got.text, got.finish], ["hello", null]);
    assert.ok(got.error instanceof OpenAI.APIError, `${got.error}`);
    assert.equal(got.error.code, "rate_limit_exceeded");
  },
  "responses-cut-late": async (name) => {
    let text = "";
    const e = await failure(async () => {
      for await (const event of await client(name).responses.create({ model: "m", input: "hi", stream: true })) {
        if (event.type === "response.output_text.delta") text += event.delta;
        assert.notEqual(event.type, "response.completed");
      }
    });
    assert.ok(e instanceof OpenAI.APIError, `${e}`);
    assert.equal(text, "hello");
  },
});
