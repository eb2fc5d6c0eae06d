"""The newest `openai` SDK against an Edge whose provider is an Ollama server. usage: ollama_client.py BASE_URL TOKEN [CHECK...]

The models are those of tests/src/ollama/models.rs. Exits with 0 when every check holds, and says of each that does not why.
"""
import base64
import json
import re
import sys
import traceback

import openai
import pydantic

BASE_URL, TOKEN, *ONLY = sys.argv[1:]
HELLO = [{"role": "user", "content": "Hello 你好🌍"}]
PROMPT_TOKENS = 26


def function(name):
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "description": f"Tells {name}.", "parameters": city}}


TOOLS = [function("get_weather"), function("get_time")]
client = openai.OpenAI(base_url=BASE_URL, api_key=TOKEN, max_retries=0, timeout=60)


def create(model, messages=HELLO, **more):
    return client.chat.completions.create(model=model, messages=messages, **more)


def streamed(model, messages=HELLO, usage=False, **more):
    """Chunks of a stream, after what holds for every stream."""
    if usage:
        more["stream_options"] = {"include_usage": True}
    chunks = list(create(model, messages, stream=True, **more))
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    for of in ("id", "created", "model"):
        assert len({getattr(chunk, of) for chunk in chunks}) == 1, (of, chunks)
    assert chunks[0].model == model, chunks[0]
    assert chunks[0].choices[0].delta.role == "assistant", chunks[0]
    with_choices = chunks[:-1] if usage else chunks
    assert all(len(chunk.choices) == 1 for chunk in with_choices), chunks
    assert all(chunk.usage is None for chunk in with_choices), chunks
    finishes = [chunk.choices[0].finish_reason for chunk in with_choices]
    assert finishes[-1] and not any(finishes[:-1]), finishes
    if usage:
        assert chunks[-1].choices == [] and chunks[-1].usage.prompt_tokens == PROMPT_TOKENS, chunks[-1]
    return chunks


def text_of(chunks):
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def finish_of(chunks):
    return [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1]


def calls_of(chunks):
    """Calls put together as clients do; id, type and name come once each, and the index always."""
    calls = {}
    for call in (c for chunk in chunks for choice in chunk.choices for c in choice.delta.tool_calls or []):
        if call.index not in calls:
            assert call.id and call.type == "function" and call.function.name, call
            calls[call.index] = {"id": call.id, "name": call.function.name, "arguments": ""}
        else:
            assert not call.id and not call.function.name, call
        calls[call.index]["arguments"] += call.function.arguments or ""
    assert list(calls) == list(range(len(calls))), calls
    return list(calls.values())


def calls_of_message(message):
    return [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
        for call in message.tool_calls or []
    ]


def expect_calls(calls, expected):
    assert [(call["name"], json.loads(call["arguments"])["city"]) for call in calls] == expected, calls
    assert len({call["id"] for call in calls}) == len(calls), calls


def conversation(calls, content="Looking. ", results=("18 °C", "noon")):
    """The next request of a tool loop: the answers come in another order than the calls."""
    called = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls
    ]
    answered = [
        {"role": "tool", "tool_call_id": call["id"], "content": result} for call, result in zip(calls, results)
    ]
    return [*HELLO, {"role": "assistant", "content": content, "tool_calls": called}, *reversed(answered)]


BOTH = [("get_weather", "Paris"), ("get_time", "Seoul")]
TOLD = "get_time=noon; get_weather=18 °C; "


def tool_loop_streamed():
    for model in ("tools", "tools-ids"):
        chunks = streamed(model, tools=TOOLS, usage=True)
        calls = calls_of(chunks)
        expect_calls(calls, BOTH)
        assert text_of(chunks) == "Looking. " and finish_of(chunks[:-1]) == "tool_calls", chunks
        if model == "tools-ids":
            assert [call["id"] for call in calls] == ["call_own0", "call_own1"], calls
        chunks = streamed(model, conversation(calls), tools=TOOLS)
        assert text_of(chunks) == TOLD and finish_of(chunks) == "stop", text_of(chunks)


def tool_loop_whole():
    for model in ("tools", "tools-ids"):
        completion = create(model, tools=TOOLS)
        choice = completion.choices[0]
        calls = calls_of_message(choice.message)
        expect_calls(calls, BOTH)
        assert choice.finish_reason == "tool_calls" and choice.message.content == "Looking. ", completion
        # Clients send null where the assistant said nothing.
        completion = create(model, conversation(calls, content=None), tools=TOOLS)
        assert completion.choices[0].message.content == TOLD, completion
        assert completion.choices[0].finish_reason == "stop" and not completion.choices[0].message.tool_calls


def tool_loop_by_the_sdks_helper():
    with client.chat.completions.stream(model="tools", messages=HELLO, tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        completion = stream.get_final_completion()
    assert kinds.count("tool_calls.function.arguments.done") == 2, kinds
    expect_calls(calls_of_message(completion.choices[0].message), BOTH)


def large_things():
    for model, count, city in (("large-calls", 2, "x" * 100_000), ("many-calls", 40, "Paris")):
        expected = [("get_weather", city)] * count
        calls = calls_of(streamed(model, tools=TOOLS))
        expect_calls(calls, expected)
        whole_calls = calls_of_message(create(model, tools=TOOLS).choices[0].message)
        expect_calls(whole_calls, expected)
        if model == "large-calls":
            assert json.loads(calls[0]["arguments"])["nested"] == {"list": [1, 2.5, None, 'ü"\\\n']}, calls[0]["arguments"][-60:]
        # They come back as they were, in a request of some size.
        back = conversation(calls, results=["18 °C"] * count)
        assert text_of(streamed("tools", back, tools=TOOLS)).count("get_weather=18 °C; ") == count
    for size in (60_000, 300_000, 3_000_000):
        sent = "Grüße " * (size // 8)
        assert create("plain", [{"role": "user", "content": sent}]).choices[0].message.content == "Hello 你好🌍!"


def choices_about_tools():
    chunks = streamed("tools", tools=TOOLS, tool_choice="none")
    assert not calls_of(chunks) and text_of(chunks) == "Hello 你好🌍!", chunks
    chunks = streamed("tools", tools=TOOLS, parallel_tool_calls=False)
    expect_calls(calls_of(chunks), BOTH[:1])
    legacy = create("tools", tools=TOOLS, parallel_tool_calls=False).choices[0]
    expect_calls(calls_of_message(legacy.message), BOTH[:1])


def reasoning():
    for effort in ("high", "low"):
        chunks = streamed("thinker", reasoning_effort=effort)
        deltas = [chunk.choices[0].delta for chunk in chunks]
        for field in ("reasoning_content", "reasoning"):
            assert "".join(getattr(d, field, None) or "" for d in deltas) == "Two times seven…", (field, deltas)
        assert text_of(chunks) == "Fourteen.", chunks
        where = ["r" if getattr(d, "reasoning", None) else "c" if d.content else "" for d in deltas]
        # What comes at once may come as one.
        assert re.fullmatch("r+c+", "".join(where)), where
    message = create("thinker", reasoning_effort="medium").choices[0].message
    assert (message.content, message.reasoning_content) == ("Fourteen.", "Two times seven…"), message
    assert message.reasoning == message.reasoning_content
    chunks = streamed("thinker", reasoning_effort="none")
    assert not any(getattr(chunk.choices[0].delta, "reasoning", None) for chunk in chunks)
    # What was thought comes back with the next question.
    back = {"role": "assistant", "content": "Fourteen.", "reasoning_content": "Two times seven…"}
    assert text_of(streamed("thinker", [*HELLO, back, *HELLO])) == "Fourteen."


class City(pydantic.BaseModel):
    name: str
    districts: int
    capital: bool
    twins: list[str]


def schema():
    expected = City(name="Paris", districts=7, capital=True, twins=["Paris"])
    parsed = client.chat.completions.parse(model="plain", messages=HELLO, response_format=City)
    assert parsed.choices[0].message.parsed == expected, parsed
    with client.chat.completions.stream(model="plain", messages=HELLO, response_format=City) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == expected
    loose = create("plain", response_format={"type": "json_object"})
    assert json.loads(loose.choices[0].message.content) == {"any": True}, loose


def whole():
    completion = create(
        "plain",
        [{"role": "developer", "content": "Be kind."}, *HELLO],
        max_completion_tokens=50,
        max_tokens=7,
        temperature=0.5,
        top_p=0.9,
        stop="END",
        seed=4,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        user="someone",
        metadata={"k": "v"},
        store=False,
        service_tier="auto",
        extra_body={"top_k": 30, "min_p": 0.05},
    )
    assert completion.object == "chat.completion" and completion.model == "plain", completion
    assert completion.id.startswith("chatcmpl-") and completion.created > 1_700_000_000, completion
    (choice,) = completion.choices
    assert (choice.index, choice.finish_reason, choice.message.role) == (0, "stop", "assistant"), completion
    assert choice.message.content == "Hello 你好🌍!", completion
    usage = completion.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (PROMPT_TOKENS, 4, PROMPT_TOKENS + 4)
    assert completion._request_id
    assert create("short").choices[0].finish_reason == "length"


def picture():
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(100)).decode()
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}},
    ]
    assert create("plain", [{"role": "user", "content": parts}]).choices[0].message.content
    parts[1]["image_url"]["url"] = "https://example.org/cat.png"
    refused((400,), lambda: create("plain", [{"role": "user", "content": parts}]), "messages")


def usage_only_when_asked():
    assert finish_of(streamed("plain")) == "stop"
    chunks = streamed("plain", usage=True)
    assert chunks[-1].usage.completion_tokens == 4, chunks[-1]
    assert finish_of(streamed("short")) == "length"


def refused(statuses, call, param=None):
    """Expects an error that came instead of an answer."""
    try:
        call()
    except openai.APIStatusError as error:
        assert error.status_code in statuses, (error.status_code, error.body)
        assert error.request_id and error.body["message"], error.body
        assert param is None or error.param.startswith(param), error.body
        return error
    raise AssertionError("no error")


def errors_before_the_first_byte():
    for stream in (False, True):
        for model in ("crashed", "failing", "proxied"):
            error = refused((502,), lambda: create(model, stream=stream))
            assert error.code == "upstream_error", error.body
        error = refused((503,), lambda: create("busy", stream=stream))
        assert 1 <= int(error.response.headers["retry-after"]) <= 60, error.response.headers
        # The provider does not have what the configuration says; nobody can tell that from a model that was removed.
        refused((400, 404, 502), lambda: create("absent", stream=stream))
        error = refused((400,), lambda: create("plain", stream=stream, reasoning_effort="high"))
        assert "thinking" in error.body["message"], error.body
        refused((400,), lambda: create("plain", stream=stream, n=2), "n")


def errors_after_the_first_byte():
    for model, text in (("crashing", "It was fine"), ("ending", "And then")):
        seen = ""
        try:
            for chunk in create(model, stream=True):
                seen += chunk.choices[0].delta.content or ""
            raise AssertionError("a broken stream ended normally")
        except openai.APIError as error:
            assert error.code == "upstream_error", (error, error.body)
        assert seen == text, seen
        # Nothing of it has been said when the answer is one object.
        assert refused((502,), lambda: create(model)).code == "upstream_error"


def text_tool_fallback():
    expected = [("get_weather", "Paris"), ("get_weather", "Seoul")]
    for system in ([], [{"role": "system", "content": "Be kind."}]):
        chunks = streamed("no-tools", [*system, *HELLO], tools=TOOLS)
        calls = calls_of(chunks)
        expect_calls(calls, expected)
        assert text_of(chunks).strip() == "Looking." and finish_of(chunks) == "tool_calls", text_of(chunks)
        raw = client.chat.completions.with_raw_response.create(
            model="no-tools", messages=[*system, *HELLO], tools=TOOLS
        )
        assert raw.headers.get("x-iop-tool-mode") == "text", raw.headers
        choice = raw.parse().choices[0]
        expect_calls(calls_of_message(choice.message), expected)
        assert choice.finish_reason == "tool_calls" and choice.message.content.strip() == "Looking.", choice
        chunks = streamed("no-tools", [*system, *conversation(calls)], tools=TOOLS)
        assert "18 °C" in text_of(chunks) or "noon" in text_of(chunks), text_of(chunks)
        assert finish_of(chunks) == "stop" and not calls_of(chunks), chunks
    # A model that could call and writes instead has written.
    written = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
    chunks = streamed("quoting", tools=TOOLS)
    assert text_of(chunks) == written and not calls_of(chunks) and finish_of(chunks) == "stop", chunks
    choice = create("quoting", tools=TOOLS).choices[0]
    assert (choice.message.content, choice.finish_reason) == (written, "stop") and not choice.message.tool_calls, choice
    # Without tools there is nothing to restore, and nothing to say about it.
    raw = client.chat.completions.with_raw_response.create(model="no-tools", messages=HELLO)
    assert "x-iop-tool-mode" not in raw.headers and raw.parse().choices[0].message.content == "Hello 你好🌍!"


CHECKS = [
    tool_loop_streamed,
    tool_loop_whole,
    tool_loop_by_the_sdks_helper,
    large_things,
    choices_about_tools,
    reasoning,
    schema,
    whole,
    picture,
    usage_only_when_asked,
    errors_before_the_first_byte,
    errors_after_the_first_byte,
    text_tool_fallback,
]
failed = []
for check in CHECKS:
    if ONLY and check.__name__ not in ONLY:
        continue
    try:
        check()
    except Exception:
        failed.append(check.__name__)
        print(f"--- {check.__name__}\n{traceback.format_exc(limit=-3)}")
print(f"openai {openai.__version__} with Ollama: {failed or 'ok'}")
sys.exit(1 if failed else 0)
