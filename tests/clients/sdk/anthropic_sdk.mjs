// The newest `@anthropic-ai/sdk` for Node: messages. See checks.mjs.
import assert from "node:assert/strict";
import {
  ANSWER, BASE_URL, BOTH, CITY, CITY_SCHEMA, FAILING, FAILING_TEXT, GREETING, KIND, NAMES, OWN_ERRORS, PARAMETERS,
  PROMPT_TOKENS, RESULTS, THOUGHT, THROUGH_EDGE, TOKEN, TOLD, all, installed, model, rejected, run,
} from "./checks.mjs";

const Anthropic = installed("@anthropic-ai/sdk").Anthropic;
const { VERSION } = installed("@anthropic-ai/sdk/version");
// Its base URL has no `/v1`.
const baseURL = BASE_URL.replace(/\/v1$/, "");
const client = new Anthropic({ baseURL, apiKey: TOKEN, maxRetries: 0, timeout: 60_000 });
const impatient = new Anthropic({ baseURL, apiKey: TOKEN, timeout: 60_000 });
const wrong = new Anthropic({ baseURL, apiKey: "wrong" });
const HELLO = [{ role: "user", content: GREETING }];
const ERRORS = {
  400: Anthropic.BadRequestError, 401: Anthropic.AuthenticationError, 403: Anthropic.PermissionDeniedError,
  404: Anthropic.NotFoundError, 409: Anthropic.ConflictError, 413: Anthropic.ContentTooLargeError,
  422: Anthropic.UnprocessableEntityError, 429: Anthropic.RateLimitError, 500: Anthropic.InternalServerError,
  503: Anthropic.ServiceUnavailableError, 529: Anthropic.OverloadedError,
};
const tools = NAMES.map((name) => ({ name, description: `Tells ${name}.`, input_schema: PARAMETERS }));
const body = (name, more) => ({ model: model(name), messages: HELLO, max_tokens: 1000, ...more });
const ask = (name, more = {}, of = client) => of.messages.create(body(name, more));
const textOf = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");
const callsOf = (message) => message.content.filter((block) => block.type === "tool_use");
const DELTAS = { text: ["text_delta"], thinking: ["thinking_delta", "signature_delta"], tool_use: ["input_json_delta"] };

/** The message that the SDK's own accumulator makes, after what holds for the events of every stream. */
async function streamed(name, more = {}) {
  const events = await all(await ask(name, { stream: true, ...more }));
  const kinds = events.map((event) => event.type).filter((type) => type !== "ping");
  assert.deepEqual([kinds[0], ...kinds.slice(-2)], ["message_start", "message_delta", "message_stop"]);
  assert.ok(events[0].message.model === model(name) && events[0].message.usage.input_tokens > 0);
  let [open, blocks] = [null, 0];
  for (const event of events) {
    if (event.type === "content_block_start") {
      assert.ok(open === null && event.index === blocks);
      open = event.content_block.type;
    } else if (event.type === "content_block_delta") {
      assert.ok(event.index === blocks && DELTAS[open].includes(event.delta.type), JSON.stringify(event));
    } else if (event.type === "content_block_stop") {
      assert.ok(event.index === blocks && open);
      [open, blocks] = [null, blocks + 1];
    }
  }
  let said = "";
  const helper = client.messages.stream(body(name, more)).on("text", (delta) => { said += delta; });
  const message = await helper.finalMessage();
  assert.deepEqual([said, message.content.length], [textOf(message), blocks]);
  return message;
}

const bothWays = async (name, more = {}) => [await streamed(name, more), await ask(name, more)];

async function plain() {
  for (const message of await bothWays("plain", { system: "Be kind.", stop_sequences: ["END"] })) {
    assert.deepEqual([textOf(message), message.stop_reason], [ANSWER, "end_turn"]);
    assert.deepEqual([message.usage.input_tokens, message.usage.output_tokens], [PROMPT_TOKENS, 4]);
    assert.deepEqual([message.type, message.role, message.model], ["message", "assistant", model("plain")]);
  }
  assert.ok((await ask("plain"))._request_id || !THROUGH_EDGE);
  for (const message of await bothWays("short")) {
    assert.deepEqual([textOf(message), message.stop_reason], ["Cut off", "max_tokens"]);
  }
}

async function thinking() {
  for (const message of await bothWays("thinker", { max_tokens: 2000, thinking: { type: "enabled", budget_tokens: 1024 } })) {
    assert.deepEqual(message.content.map((block) => block.type), ["thinking", "text"]);
    assert.deepEqual([message.content[0].thinking, textOf(message)], [THOUGHT, "Fourteen."]);
    const back = [...HELLO, { role: "assistant", content: message.content }, ...HELLO];
    assert.equal(textOf(await ask("plain", { messages: back })), ANSWER);
  }
}

async function toolLoop() {
  for (const message of await bothWays("tools", { tools })) {
    const calls = callsOf(message);
    assert.deepEqual(calls.map((call) => [call.name, call.input.city]), BOTH);
    assert.equal(new Set(calls.map((call) => call.id)).size, 2);
    assert.deepEqual([textOf(message), message.stop_reason], ["Looking. ", "tool_use"]);
    const results = calls.map((call, index) => ({ type: "tool_result", tool_use_id: call.id, content: RESULTS[index] }));
    const messages = [...HELLO, { role: "assistant", content: message.content }, { role: "user", content: results }];
    for (const again of await bothWays("tools", { messages, tools })) {
      assert.deepEqual([textOf(again), again.stop_reason], [TOLD, "end_turn"]);
    }
  }
}

async function structured() {
  const format = { type: "json_schema", schema: CITY_SCHEMA };
  const parsed = await client.messages.parse(body("plain", { output_config: { format } }));
  assert.deepEqual(JSON.parse(textOf(parsed)), CITY);
}

async function brokenStreams() {
  for (const name of KIND === "normalized" ? [FAILING] : [FAILING, "cut"]) {
    let seen = "";
    const read = async () => {
      for await (const event of await ask(name, { stream: true })) {
        if (event.type === "content_block_delta") seen += event.delta.text;
      }
    };
    const error = await rejected(read());
    assert.equal(seen, FAILING_TEXT, name);
    if (name !== "cut" || THROUGH_EDGE) {
      assert.ok(error instanceof Anthropic.APIError, `${name}: ${error}`);
      assert.ok(["api_error", "overloaded_error"].includes(error.error.error.type), JSON.stringify(error.error));
    }
  }
}

async function count() {
  const counted = await client.messages.countTokens({ model: model("plain"), messages: HELLO, tools, system: "Be kind." });
  // An estimate, whatever the provider can.
  assert.ok(THROUGH_EDGE ? counted.input_tokens > 20 && counted.input_tokens < 200 : counted.input_tokens === PROMPT_TOKENS, counted);
}

async function models() {
  if (!THROUGH_EDGE) return;
  const listed = await all(client.models.list({ limit: 1000 }));
  assert.ok(listed.some((entry) => entry.id === model("plain") && entry.type === "model" && entry.display_name));
  assert.equal((await client.models.retrieve(model("plain"))).id, model("plain"));
  await refused(client.models.retrieve("none/such"), Anthropic.NotFoundError, 404, "not_found_error");
}

async function refused(promise, kind, status, type) {
  const error = await rejected(promise, kind);
  assert.deepEqual([error.status, error.error.type, error.error.error.type], [status, "error", type]);
  assert.ok(error.error.error.message && error.requestID && error.error.request_id === error.requestID, JSON.stringify(error.error));
  return error;
}

async function errors() {
  for (const stream of [false, true]) {
    for (const [status, kind] of OWN_ERRORS ? [] : Object.entries(ERRORS)) {
      const error = await rejected(ask(`status-${status}`, { stream }), kind);
      assert.ok(error.constructor === kind && error.message.includes(`the script says ${status}`), error.message);
      assert.ok(error.requestID || !THROUGH_EDGE);
    }
    if (!THROUGH_EDGE) continue;
    await refused(ask("plain", { stream }, wrong), Anthropic.AuthenticationError, 401, "authentication_error");
    await refused(ask("none", { stream }), Anthropic.NotFoundError, 404, "not_found_error");
    if (KIND === "normalized") {
      await refused(ask("crashed", { stream }), Anthropic.InternalServerError, 502, "api_error");
    }
  }
}

/** As many requests as the SDK makes by itself; the test counts them at the provider. */
async function retries() {
  if (KIND === "normalized") {
    await rejected(ask("crashed", {}, impatient), Anthropic.InternalServerError);
  } else {
    const statuses = OWN_ERRORS ? [429, 500, 503] : Object.keys(ERRORS);
    await Promise.all([
      ...statuses.map((status) => rejected(ask(`retried-${status}`, {}, impatient), Anthropic.APIError)),
      ...[429, 500, 503].map((status) => ask(`once-${status}`, {}, impatient)),
    ]);
  }
  if (!THROUGH_EDGE) return;
  // The Edge is sure of these: they are asked once.
  await rejected(ask("plain", {}, wrong), Anthropic.AuthenticationError);
  await rejected(ask("none", {}, impatient), Anthropic.NotFoundError);
}

async function manyAtOnce() {
  const one = async () => textOf(await client.messages.stream(body("plain")).finalMessage());
  assert.deepEqual(new Set(await Promise.all(Array.from({ length: 16 }, one))), new Set([ANSWER]));
}

await run(
  [plain, thinking, toolLoop, structured, brokenStreams, count, models, errors, retries, manyAtOnce],
  `@anthropic-ai/sdk ${VERSION} (Node ${process.version})`,
);
