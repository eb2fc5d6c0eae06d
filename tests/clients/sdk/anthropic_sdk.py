"""The newest `anthropic` for Python: messages. See checks.py."""
import asyncio
import json

import anthropic
import pydantic

from checks import *

# Its base URL has no `/v1`.
URL = BASE_URL.removesuffix("/v1")
client = anthropic.Anthropic(base_url=URL, api_key=TOKEN, max_retries=0, timeout=60)
impatient = anthropic.Anthropic(base_url=URL, api_key=TOKEN, timeout=60)
HELLO = [{"role": "user", "content": GREETING}]


class City(pydantic.BaseModel):
    name: str
    districts: int
    capital: bool
    twins: list[str]


CITY = City(name="Paris", districts=7, capital=True, twins=["Paris"])
ERRORS = {
    400: anthropic.BadRequestError, 401: anthropic.AuthenticationError, 403: anthropic.PermissionDeniedError,
    404: anthropic.NotFoundError, 409: anthropic.ConflictError, 413: anthropic.ContentTooLargeError,
    422: anthropic.UnprocessableEntityError, 429: anthropic.RateLimitError, 500: anthropic.InternalServerError,
    503: anthropic.ServiceUnavailableError, 529: anthropic.OverloadedError,
}


def ask(name, messages=HELLO, of=client, **more):
    return of.messages.create(model=model(name), messages=messages, max_tokens=more.pop("max_tokens", 1000), **more)


def tools():
    return [{"name": n, "description": f"Tells {n}.", "input_schema": schema(n)} for n in ("get_weather", "get_time")]


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def calls_of(message):
    return [block for block in message.content if block.type == "tool_use"]


def expect(calls):
    assert [(call.name, call.input["city"]) for call in calls] == BOTH, calls
    assert len({call.id for call in calls}) == 2, calls


DELTAS = {
    "text": {"text_delta"}, "thinking": {"thinking_delta", "signature_delta"}, "tool_use": {"input_json_delta"},
}


def streamed(name, messages=HELLO, **more):
    """The message that raw events make, after what holds for every stream."""
    events = list(ask(name, messages, stream=True, **more))
    kinds = [event.type for event in events if event.type != "ping"]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    assert kinds.count("message_start") == kinds.count("message_stop") == 1, kinds
    assert events[0].message.model == model(name) and events[0].message.usage.input_tokens > 0, events[0]
    open_block, blocks = None, 0
    for event in events:
        if event.type == "content_block_start":
            assert open_block is None and event.index == blocks, event
            open_block = event.content_block.type
        elif event.type == "content_block_delta":
            assert event.index == blocks and event.delta.type in DELTAS[open_block], event
        elif event.type == "content_block_stop":
            assert event.index == blocks and open_block, event
            open_block, blocks = None, blocks + 1
    # The SDK's own accumulator is the judge of the rest.
    with client.messages.stream(
        model=model(name), messages=messages, max_tokens=more.pop("max_tokens", 1000), **more
    ) as stream:
        said = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert said == text_of(message) and len(message.content) == blocks, (said, message)
    return message


def both_ways(name, messages=HELLO, **more):
    return streamed(name, messages, **more), ask(name, messages, **more)


def plain():
    for message in both_ways("plain", system=[{"type": "text", "text": "Be kind."}], stop_sequences=["END"]):
        assert text_of(message) == ANSWER and message.stop_reason == "end_turn", message
        assert message.usage.input_tokens == PROMPT_TOKENS and message.usage.output_tokens == 4, message.usage
        assert message.type == "message" and message.role == "assistant" and message.model == model("plain"), message
    assert ask("plain")._request_id or not THROUGH_EDGE
    for message in both_ways("short"):
        assert message.stop_reason == "max_tokens" and text_of(message) == "Cut off", message
    # Hints between the turns, as Claude Code sends them.
    hints = [*HELLO, {"role": "assistant", "content": "Hi"}, {"role": "system", "content": "Be kind."}, *HELLO]
    assert text_of(ask("plain", hints)) == ANSWER


def thinking():
    for message in both_ways("thinker", max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024}):
        kinds = [block.type for block in message.content]
        assert kinds == ["thinking", "text"], message
        assert message.content[0].thinking == THOUGHT and text_of(message) == "Fourteen.", message
        # It comes back with the next question.
        back = [*HELLO, {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]}]
        assert text_of(ask("plain", [*back, *HELLO])) == ANSWER


def tool_loop():
    for message in both_ways("tools", tools=tools()):
        expect(calls_of(message))
        assert text_of(message) == "Looking. " and message.stop_reason == "tool_use", message
        results = [
            {"type": "tool_result", "tool_use_id": calls_of(message)[0].id, "content": RESULTS[0]},
            {"type": "tool_result", "tool_use_id": calls_of(message)[1].id, "content": [{"type": "text", "text": RESULTS[1]}]},
        ]
        called = [block.model_dump(exclude_none=True) for block in message.content]
        back = [*HELLO, {"role": "assistant", "content": called}, {"role": "user", "content": results}]
        for again in both_ways("tools", back, tools=tools()):
            assert text_of(again) == TOLD and again.stop_reason == "end_turn", again


def structured():
    parsed = client.messages.parse(model=model("plain"), messages=HELLO, max_tokens=1000, output_format=City)
    assert parsed.parsed_output == CITY, parsed


def broken_streams():
    for name in (FAILING,) if KIND == "normalized" else (FAILING, "cut"):
        seen = []

        def read():
            for event in ask(name, stream=True):
                if event.type == "content_block_delta":
                    seen.append(event.delta.text)

        error = raised(read)
        assert "".join(seen) == FAILING_TEXT, (name, seen)
        if name != "cut" or THROUGH_EDGE:
            assert isinstance(error, anthropic.APIStatusError), (name, error)
            assert error.body["error"]["type"] in ("api_error", "overloaded_error"), error.body


def count():
    counted = client.messages.count_tokens(model=model("plain"), messages=HELLO, tools=tools(), system="Be kind.")
    if THROUGH_EDGE:
        # An estimate, whatever the provider can.
        assert 20 < counted.input_tokens < 200, counted
    else:
        assert counted.input_tokens == PROMPT_TOKENS, counted


def models():
    if not THROUGH_EDGE:
        return
    page = client.models.list(limit=1000)
    assert model("plain") in [entry.id for entry in page.data] and page.has_more is False, page
    assert all(entry.type == "model" and entry.display_name and entry.created_at for entry in page.data), page
    assert client.models.retrieve(model("plain")).id == model("plain")
    error = raised(lambda: client.models.retrieve("none/such"), anthropic.NotFoundError)
    assert error.body["error"]["type"] == "not_found_error", error.body


def refused(call, kind, status, type_):
    error = raised(call, kind)
    assert error.status_code == status and error.body["type"] == "error", error.body
    assert error.body["error"]["type"] == type_ and error.body["error"]["message"], error.body
    assert error.request_id and error.body.get("request_id") == error.request_id, (error.request_id, error.body)
    return error


def errors():
    """Class, type and request id of each failure; the provider's own where it speaks the surface."""
    for stream in (False, True):
        for status, kind in ERRORS.items():
            if OWN_ERRORS:
                break
            error = raised(lambda: ask(f"status-{status}", stream=stream), kind)
            assert type(error) is kind and f"the script says {status}" in str(error.body), error
            assert error.request_id or not THROUGH_EDGE, error
    if not THROUGH_EDGE:
        return
    # Both ways to send a token: this SDK's, and that of those before it.
    old = anthropic.Anthropic(base_url=URL, api_key=None, auth_token=None, max_retries=0, default_headers={"x-api-key": TOKEN, "authorization": anthropic.Omit(), "anthropic-version": "2023-06-01"})
    assert text_of(ask("plain", of=old)) == ANSWER
    wrong = anthropic.Anthropic(base_url=URL, api_key="wrong", max_retries=0)
    for stream in (False, True):
        refused(lambda: ask("plain", of=wrong, stream=stream), anthropic.AuthenticationError, 401, "authentication_error")
        refused(lambda: ask("none", stream=stream), anthropic.NotFoundError, 404, "not_found_error")
        if KIND == "normalized":
            refused(lambda: ask("crashed", stream=stream), anthropic.InternalServerError, 502, "api_error")
            error = refused(lambda: ask("busy", stream=stream), anthropic.ServiceUnavailableError, 503, "overloaded_error")
            assert 1 <= int(error.response.headers["retry-after"]) <= 60, error


def retries():
    """As many requests as the SDK makes by itself; the test counts them at the provider."""
    if KIND == "normalized":
        calls = [lambda: raised(lambda: ask("crashed", of=impatient), anthropic.InternalServerError)]
    else:
        # Models of their own: `errors` has asked the others.
        statuses = [429, 500, 503] if OWN_ERRORS else list(ERRORS)
        calls = [lambda s=s: raised(lambda: ask(f"retried-{s}", of=impatient), anthropic.APIStatusError) for s in statuses]
        calls += [lambda s=s: ask(f"once-{s}", of=impatient) for s in (429, 500, 503)]
    at_once(calls)
    if THROUGH_EDGE:
        # The Edge is sure of these: they are asked once.
        wrong = anthropic.Anthropic(base_url=URL, api_key="wrong")
        raised(lambda: ask("plain", of=wrong), anthropic.AuthenticationError)
        raised(lambda: ask("none", of=impatient), anthropic.NotFoundError)


def many_at_once():
    async def run():
        asynchronous = anthropic.AsyncAnthropic(base_url=URL, api_key=TOKEN, max_retries=0, timeout=60)

        async def one():
            async with asynchronous.messages.stream(model=model("plain"), messages=HELLO, max_tokens=100) as stream:
                return "".join([text async for text in stream.text_stream])

        assert set(await asyncio.gather(*(one() for _ in range(16)))) == {ANSWER}

    asyncio.run(run())


run(
    [plain, thinking, tool_loop, structured, broken_streams, count, models, errors, retries, many_at_once],
    f"anthropic {anthropic.__version__} (Python)",
)
