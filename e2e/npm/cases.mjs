// What the scripts have in common: they are given the gateway's URL, run each case below a path of its own, and print
// a line of JSON for each. ../npm_test.go reads the lines, and counts the calls that the upstreams got meanwhile.

import assert from "node:assert/strict";

/** The base URL of a case. */
export const at = (name) => `${process.argv[2]}/${name}`;

/** Runs cases, one after the other. */
export async function run(cases) {
  for (const [name, f] of Object.entries(cases)) {
    let error = "";
    try {
      await f(name);
    } catch (e) {
      error = e.stack ?? String(e);
    }
    console.log(JSON.stringify({ name, error }));
  }
}

/** Awaits a rejection, and returns what it was rejected with. */
export async function failure(f) {
  let value;
  try {
    value = await f();
  } catch (e) {
    return e;
  }
  assert.fail(`no error, but ${JSON.stringify(value)}`);
}

/** The tool that the tool cases offer, as a JSON schema. */
export const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
