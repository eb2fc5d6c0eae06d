// The newest `openai` for Node: chat completions and responses. See checks.mjs.
import assert from "node:assert/strict";
import {
  ANSWER, BASE_URL, BOTH, CITY, CITY_SCHEMA, FAILING, FAILING_TEXT, GREETING, KIND, NAMES, OWN_ERRORS, PARAMETERS,
  PROMPT_TOKENS, RESULTS, SURFACE, THOUGHT, THROUGH_EDGE, TOKEN, TOLD, all, installed, model, rejected, run,
} from "./checks.mjs";

const { OpenAI } = installed("openai");
const { VERSION } = installed("openai/version");
// Retries would hide what is answered; those of the SDK's own are a check of their own.
const client = new OpenAI({ baseURL: BASE_URL, apiKey: TOKEN, maxRetries: 0, timeout: 60_000 });
const impatient = new OpenAI({ baseURL: BASE_URL, apiKey: TOKEN, timeout: 60_000 });
const wrong = new OpenAI({ baseURL: BASE_URL, apiKey: "wrong" });
const HELLO = [{ role: "user", content: GREETING }];
const ERRORS = {
  400: OpenAI.BadRequestError, 401: OpenAI.AuthenticationError, 403: OpenAI.PermissionDeniedError,
  404: OpenAI.NotFoundError, 409: OpenAI.ConflictError, 413: OpenAI.APIError, 422: OpenAI.UnprocessableEntityError,
  429: OpenAI.RateLimitError, 500: OpenAI.InternalServerError, 503: OpenAI.InternalServerError,
};

// --- chat completions

const chatTools = NAMES.map((name) => ({ type: "function", function: { name, description: `Tells ${name}.`, parameters: PARAMETERS } }));
const chat = (name, more = {}, of = client) =>
  of.chat.completions.create({ model: model(name), messages: HELLO, ...more });

/** Chunks of a stream, after what holds for every stream. */
async function chunksOf(name, more = {}) {
  const usage = { stream_options: { include_usage: true } };
  const chunks = await all(await chat(name, { stream: true, ...usage, ...more }));
  for (const of of ["id", "created", "model", "object"]) assert.equal(new Set(chunks.map((c) => c[of])).size, 1, of);
  const counted = chunks.pop();
  assert.deepEqual([counted.choices, counted.usage.prompt_tokens], [[], PROMPT_TOKENS]);
  const deltas = chunks.map((chunk) => chunk.choices[0].delta);
  assert.deepEqual(deltas.map((delta) => delta.role).filter(Boolean), ["assistant"]);
  assert.equal(deltas[0].role, "assistant");
  const finishes = chunks.map((chunk) => chunk.choices[0].finish_reason);
  assert.equal(finishes.findIndex(Boolean), finishes.length - 1);
  return { deltas, finish: finishes.at(-1), text: deltas.map((delta) => delta.content ?? "").join("") };
}

function expect(calls) {
  assert.deepEqual(calls.map((call) => [call.name, JSON.parse(call.arguments).city]), BOTH);
  assert.equal(new Set(calls.map((call) => call.id).filter(Boolean)).size, 2);
}

const chatCallsOf = (message) => (message.tool_calls ?? []).map((call) => ({ id: call.id, ...call.function }));

function chatAnswered(calls, content) {
  const called = calls.map(({ id, name, arguments: text }) => ({ id, type: "function", function: { name, arguments: text } }));
  const results = calls.map((call, index) => ({ role: "tool", tool_call_id: call.id, content: RESULTS[index] }));
  return [...HELLO, { role: "assistant", content, tool_calls: called }, ...results];
}

async function chatWhole() {
  const answer = await chat("plain", { max_completion_tokens: 50, temperature: 0.5 });
  assert.equal(answer.choices[0].message.content, ANSWER);
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.deepEqual([answer.usage.prompt_tokens, answer.usage.completion_tokens], [PROMPT_TOKENS, 4]);
  assert.ok(answer._request_id || !THROUGH_EDGE);
  assert.equal((await chat("short")).choices[0].finish_reason, "length");
}

async function chatStream() {
  const { text, finish } = await chunksOf("plain");
  assert.deepEqual([text, finish], [ANSWER, "stop"]);
  assert.equal((await chunksOf("short")).finish, "length");
  const helper = client.chat.completions.stream({ model: model("plain"), messages: HELLO });
  let said = "";
  helper.on("content", (delta) => { said += delta; });
  const completion = await helper.finalChatCompletion();
  assert.deepEqual([said, completion.choices[0].message.content], [ANSWER, ANSWER]);
}

async function chatReasoning() {
  const { deltas, text } = await chunksOf("thinker", { reasoning_effort: "medium" });
  assert.deepEqual([deltas.map((delta) => delta.reasoning_content ?? "").join(""), text], [THOUGHT, "Fourteen."]);
  const { message } = (await chat("thinker", { reasoning_effort: "medium" })).choices[0];
  assert.deepEqual([message.reasoning_content, message.content], [THOUGHT, "Fourteen."]);
}

async function chatToolLoop() {
  const { deltas, finish, text } = await chunksOf("tools", { tools: chatTools });
  const calls = [];
  for (const call of deltas.flatMap((delta) => delta.tool_calls ?? [])) {
    if (!calls[call.index]) {
      assert.ok(call.id && call.type === "function" && call.function.name);
      calls[call.index] = { id: call.id, name: call.function.name, arguments: "" };
    } else {
      assert.ok(!call.id && !call.function.name);
    }
    calls[call.index].arguments += call.function.arguments ?? "";
  }
  assert.deepEqual([text, finish], ["Looking. ", "tool_calls"]);
  const helped = await client.chat.completions.stream({ model: model("tools"), messages: HELLO, tools: chatTools }).finalMessage();
  const whole = (await chat("tools", { tools: chatTools })).choices[0];
  assert.equal(whole.finish_reason, "tool_calls");
  for (const answered of [calls, chatCallsOf(helped), chatCallsOf(whole.message)]) {
    expect(answered);
    for (const content of ["Looking. ", null]) {
      const back = { messages: chatAnswered(answered, content), tools: chatTools };
      assert.equal((await chunksOf("tools", back)).text, TOLD);
      assert.equal((await chat("tools", back)).choices[0].message.content, TOLD);
    }
  }
  // The SDK's own loop: it calls the functions and asks again.
  const asked = [];
  const tools = NAMES.map((name, index) => ({
    type: "function",
    function: { name, description: name, parameters: PARAMETERS, parse: JSON.parse, function: ({ city }) => { asked.push([name, city]); return RESULTS[index]; } },
  }));
  const runner = client.chat.completions.runTools({ model: model("tools"), messages: HELLO, tools, stream: true });
  assert.equal(await runner.finalContent(), TOLD);
  assert.deepEqual(asked, BOTH);
}

async function chatStructured() {
  const format = { type: "json_schema", json_schema: { name: "city", strict: true, schema: CITY_SCHEMA } };
  const parsed = await client.chat.completions.parse({ model: model("plain"), messages: HELLO, response_format: format });
  assert.deepEqual(JSON.parse(parsed.choices[0].message.content), CITY);
  const helped = await client.chat.completions.stream({ model: model("plain"), messages: HELLO, response_format: format }).finalContent();
  assert.deepEqual(JSON.parse(helped), CITY);
}

async function chatBrokenStreams() {
  for (const name of KIND === "normalized" ? [FAILING] : [FAILING, "cut"]) {
    let seen = "";
    const read = async () => {
      for await (const chunk of await chat(name, { stream: true })) seen += chunk.choices[0].delta.content ?? "";
    };
    const error = await rejected(read());
    assert.equal(seen, FAILING_TEXT, name);
    if (name !== "cut" || THROUGH_EDGE) assert.ok(error instanceof OpenAI.APIError && error.code, `${name}: ${error}`);
  }
}

// --- responses

const flatTools = NAMES.map((name) => ({ type: "function", name, description: `Tells ${name}.`, parameters: PARAMETERS, strict: false }));
const ask = (name, more = {}, of = client) => of.responses.create({ model: model(name), input: GREETING, ...more });
const callsOf = (response) =>
  response.output.filter((item) => item.type === "function_call").map((item) => ({ id: item.call_id, name: item.name, arguments: item.arguments }));

/** Events of a stream and its last response, after what holds for every stream. */
async function eventsOf(name, more = {}) {
  const events = await all(await ask(name, { stream: true, ...more }));
  assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, index) => index));
  assert.deepEqual(events.slice(0, 2).map((event) => event.type), ["response.created", "response.in_progress"]);
  const last = events.at(-1).response;
  assert.equal(last.id, events[0].response.id);
  const text = last.output.filter((item) => item.type === "message").flatMap((item) => item.content).map((part) => part.text).join("");
  const deltas = events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta).join("");
  assert.equal(deltas, text);
  return { events, last, text };
}

async function responsesWhole() {
  const response = await ask("plain", { instructions: "Be kind.", max_output_tokens: 50, store: false });
  assert.deepEqual([response.output_text, response.status, response.model], [ANSWER, "completed", model("plain")]);
  assert.deepEqual([response.usage.input_tokens, response.usage.output_tokens], [PROMPT_TOKENS, 4]);
  assert.ok(response._request_id || !THROUGH_EDGE);
  const short = await ask("short");
  assert.deepEqual([short.status, short.incomplete_details.reason], ["incomplete", "max_output_tokens"]);
}

async function responsesStream() {
  const { last, text } = await eventsOf("plain");
  assert.deepEqual([text, last.status, last.usage.input_tokens], [ANSWER, "completed", PROMPT_TOKENS]);
  assert.equal((await eventsOf("short")).events.at(-1).type, "response.incomplete");
  const helped = await client.responses.stream({ model: model("plain"), input: GREETING }).finalResponse();
  assert.equal(helped.output_text, ANSWER);
}

async function responsesReasoning() {
  const { last } = await eventsOf("thinker", { reasoning: { effort: "medium" } });
  for (const response of [last, await ask("thinker", { reasoning: { effort: "medium" } })]) {
    const [thought] = response.output.filter((item) => item.type === "reasoning");
    assert.equal([...(thought.content ?? []), ...thought.summary].map((part) => part.text).join(""), THOUGHT);
    const back = [{ role: "user", content: GREETING }, ...response.output, { role: "user", content: "And?" }];
    assert.equal((await ask("plain", { input: back })).output_text, ANSWER);
  }
}

async function responsesToolLoop() {
  const { last } = await eventsOf("tools", { tools: flatTools });
  const helped = await client.responses.stream({ model: model("tools"), input: GREETING, tools: flatTools }).finalResponse();
  for (const response of [last, helped, await ask("tools", { tools: flatTools, parallel_tool_calls: true })]) {
    expect(callsOf(response));
    const results = callsOf(response).map((call, index) => ({ type: "function_call_output", call_id: call.id, output: RESULTS[index] }));
    const output = response.output.map(({ parsed_arguments: _, ...item }) => item);
    const back = { input: [{ role: "user", content: GREETING }, ...output, ...results], tools: flatTools };
    assert.equal((await eventsOf("tools", back)).text, TOLD);
    assert.equal((await ask("tools", back)).output_text, TOLD);
  }
}

async function responsesStructured() {
  const text = { format: { type: "json_schema", name: "city", strict: true, schema: CITY_SCHEMA } };
  const parsed = await client.responses.parse({ model: model("plain"), input: GREETING, text });
  assert.deepEqual(JSON.parse(parsed.output_text), CITY);
}

async function responsesBrokenStreams() {
  for (const name of KIND === "normalized" ? [FAILING] : [FAILING, "cut"]) {
    const events = [];
    // This SDK throws at `event: error`, which a failure may begin with, and at a connection that breaks.
    try {
      for await (const event of await ask(name, { stream: true })) events.push(event);
    } catch (error) {
      if (name !== "cut") assert.ok(error instanceof OpenAI.APIError, error);
      events.push({ type: "thrown" });
    }
    const seen = events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta).join("");
    assert.equal(seen, FAILING_TEXT, name);
    assert.ok(["response.failed", "thrown"].includes(events.at(-1).type), events.at(-1).type);
  }
}

// --- both

const callOf = (name, more = {}, of = client) => (SURFACE === "chat" ? chat(name, more, of) : ask(name, more, of));

async function models() {
  if (!THROUGH_EDGE) return;
  const listed = await all(client.models.list());
  assert.ok(listed.some((entry) => entry.id === model("plain") && entry.object === "model" && entry.created));
  assert.equal((await client.models.retrieve(model("plain"))).id, model("plain"));
  assert.equal((await rejected(client.models.retrieve("none/such"), OpenAI.NotFoundError)).code, "model_not_found");
}

async function errors() {
  for (const stream of [false, true]) {
    for (const [status, kind] of OWN_ERRORS ? [] : Object.entries(ERRORS)) {
      const error = await rejected(callOf(`status-${status}`, { stream }), kind);
      assert.equal(error.constructor, kind);
      assert.ok(error.status === Number(status) && error.message.includes(`the script says ${status}`), error.message);
      assert.ok(error.requestID || !THROUGH_EDGE);
    }
    if (!THROUGH_EDGE) continue;
    const refused = await rejected(callOf("plain", { stream }, wrong), OpenAI.AuthenticationError);
    assert.ok(refused.code === "invalid_api_key" && refused.requestID);
    const absent = await rejected(callOf("none", { stream }), OpenAI.NotFoundError);
    assert.ok(absent.code === "model_not_found" && absent.param === "model" && absent.requestID);
    if (KIND === "normalized") {
      const crashed = await rejected(callOf("crashed", { stream }), OpenAI.InternalServerError);
      assert.deepEqual([crashed.status, crashed.code], [502, "upstream_error"]);
    }
  }
}

/** As many requests as the SDK makes by itself; the test counts them at the provider. */
async function retries() {
  if (KIND === "normalized") {
    await rejected(callOf("crashed", {}, impatient), OpenAI.InternalServerError);
  } else {
    const statuses = OWN_ERRORS ? [429, 500, 503] : Object.keys(ERRORS);
    await Promise.all([
      ...statuses.map((status) => rejected(callOf(`retried-${status}`, {}, impatient), OpenAI.APIError)),
      ...[429, 500, 503].map((status) => callOf(`once-${status}`, {}, impatient)),
    ]);
  }
  if (!THROUGH_EDGE) return;
  // The Edge is sure of these: they are asked once.
  await rejected(callOf("plain", {}, wrong), OpenAI.AuthenticationError);
  await rejected(callOf("none", {}, impatient), OpenAI.NotFoundError);
}

async function manyAtOnce() {
  const one = async () => {
    let text = "";
    for await (const event of await callOf("plain", { stream: true })) {
      text += SURFACE === "chat" ? (event.choices[0]?.delta.content ?? "") : event.type === "response.output_text.delta" ? event.delta : "";
    }
    return text;
  };
  assert.deepEqual(new Set(await Promise.all(Array.from({ length: 16 }, one))), new Set([ANSWER]));
}

const own = SURFACE === "chat"
  ? [chatWhole, chatStream, chatReasoning, chatToolLoop, chatStructured, chatBrokenStreams]
  : [responsesWhole, responsesStream, responsesReasoning, responsesToolLoop, responsesStructured, responsesBrokenStreams];
await run([...own, models, errors, retries, manyAtOnce], `openai ${VERSION} (Node ${process.version})`);
