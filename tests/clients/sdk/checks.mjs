// What the scripts for Node share, as checks.py does for Python. Each runs as SCRIPT BASE_URL TOKEN SURFACE KIND [CHECK...].
import assert from "node:assert/strict";
import { createRequire } from "node:module";

export const [BASE_URL, TOKEN, SURFACE, KIND, ...ONLY] = process.argv.slice(2);
/** What is installed is in a directory of its own. */
export const installed = createRequire(`${process.env.IOP_TEST_SDKS}/x.js`);
const DIRECT = { chat: "", responses: "", messages: "" };
const RAW = { chat: "chat/", responses: "openai/", messages: "anthropic/" };
const PREFIX = { direct: DIRECT, raw: RAW, translated: { responses: "chat/", messages: "chat/" } }[KIND]?.[SURFACE] ?? "";
export const model = (name) => PREFIX + name;
export const GREETING = "Hello 你好🌍";
export const ANSWER = "Hello 你好🌍!";
export const THOUGHT = "Two times seven…";
export const TOLD = "get_weather=18 °C; get_time=noon; ";
export const RESULTS = ["18 °C", "noon"];
export const BOTH = [["get_weather", "Paris"], ["get_time", "Seoul"]];
export const PROMPT_TOKENS = 26;
export const THROUGH_EDGE = KIND !== "direct";
export const OWN_ERRORS = ["translated", "normalized"].includes(KIND);
export const FAILING = KIND === "normalized" ? "crashing" : "failing";
export const FAILING_TEXT = KIND === "normalized" ? "It was fine" : "It was ";
export const NAMES = ["get_weather", "get_time"];
export const PARAMETERS = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
export const CITY_SCHEMA = {
  type: "object",
  properties: {
    name: { type: "string" }, districts: { type: "integer" }, capital: { type: "boolean" },
    twins: { type: "array", items: { type: "string" } },
  },
  required: ["name", "districts", "capital", "twins"], additionalProperties: false,
};
export const CITY = { name: "Paris", districts: 7, capital: true, twins: ["Paris"] };

export async function all(iterable) {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
}

/** What a promise was rejected with, of this class. */
export async function rejected(promise, kind = Error) {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof kind, `${error?.constructor?.name}: ${error}`);
    return error;
  }
  assert.fail(`expected ${kind.name}`);
}

export async function run(checks, name) {
  const failed = [];
  for (const check of checks) {
    if (ONLY.length && !ONLY.includes(check.name)) continue;
    try {
      await check();
    } catch (error) {
      failed.push(check.name);
      console.log(`--- ${check.name}`, error);
    }
  }
  if (failed.length) {
    console.log(`${name}, ${SURFACE}, ${KIND}: failed: ${failed.join(", ")}`);
    process.exit(1);
  }
  console.log(`${name}, ${SURFACE}, ${KIND}: ${checks.length} checks ok`);
  process.exit(0);
}
