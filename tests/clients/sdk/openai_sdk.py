"""The newest `openai` for Python: chat completions and responses. See checks.py."""
import asyncio
import json

import openai
import pydantic

from checks import *

# Retries would hide what is answered; those of the SDK's own are a check of their own.
client = openai.OpenAI(base_url=BASE_URL, api_key=TOKEN, max_retries=0, timeout=60)
impatient = openai.OpenAI(base_url=BASE_URL, api_key=TOKEN, timeout=60)
HELLO = [{"role": "user", "content": GREETING}]


class City(pydantic.BaseModel):
    name: str
    districts: int
    capital: bool
    twins: list[str]


CITY = City(name="Paris", districts=7, capital=True, twins=["Paris"])
ERRORS = {
    400: openai.BadRequestError, 401: openai.AuthenticationError, 403: openai.PermissionDeniedError,
    404: openai.NotFoundError, 409: openai.ConflictError, 413: openai.APIStatusError,
    422: openai.UnprocessableEntityError, 429: openai.RateLimitError, 500: openai.InternalServerError,
    503: openai.InternalServerError,
}


# --- chat completions


def chat(name, messages=HELLO, of=client, **more):
    return of.chat.completions.create(model=model(name), messages=messages, **more)


def chat_tools():
    return [
        {"type": "function", "function": {"name": n, "description": f"Tells {n}.", "parameters": schema(n)}}
        for n in ("get_weather", "get_time")
    ]


def chunks_of(name, messages=HELLO, usage=False, **more):
    """Chunks of a stream, after what holds for every stream."""
    if usage:
        more["stream_options"] = {"include_usage": True}
    chunks = list(chat(name, messages, stream=True, **more))
    for of in ("id", "created", "model", "object"):
        assert len({getattr(chunk, of) for chunk in chunks}) == 1, (of, chunks)
    with_choices = chunks[:-1] if usage else chunks
    assert all(len(chunk.choices) == 1 and chunk.usage is None for chunk in with_choices), chunks
    roles = [chunk.choices[0].delta.role for chunk in with_choices]
    assert roles[0] == "assistant" and not any(roles[1:]), roles
    finishes = [chunk.choices[0].finish_reason for chunk in with_choices]
    assert finishes[-1] and not any(finishes[:-1]), finishes
    if usage:
        assert chunks[-1].choices == [] and chunks[-1].usage.prompt_tokens == PROMPT_TOKENS, chunks[-1]
    return with_choices, finishes[-1]


def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def chat_calls_of(message):
    return [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or []]


def expect(calls):
    assert [(name, json.loads(arguments)["city"]) for _, name, arguments in calls] == BOTH, calls
    assert len({id for id, _, _ in calls}) == 2 and all(id for id, _, _ in calls), calls


def chat_answered(calls, content="Looking. ", **more):
    called = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
    results = [{"role": "tool", "tool_call_id": c[0], "content": r} for c, r in zip(calls, RESULTS)]
    return [*HELLO, {"role": "assistant", "content": content, "tool_calls": called, **more}, *results]


def chat_whole():
    answer = chat("plain", [{"role": "developer", "content": "Be kind."}, *HELLO], max_tokens=50, temperature=0.5)
    assert answer.choices[0].message.content == ANSWER and answer.choices[0].finish_reason == "stop", answer
    assert answer.usage.prompt_tokens == PROMPT_TOKENS and answer.usage.completion_tokens == 4, answer
    assert answer.model == model("plain") and (answer._request_id or not THROUGH_EDGE), answer
    assert chat("short").choices[0].finish_reason == "length"


def chat_stream():
    for usage in (False, True):
        chunks, finish = chunks_of("plain", usage=usage)
        assert text_of(chunks) == ANSWER and finish == "stop", chunks
    assert chunks_of("short")[1] == "length"
    kinds = []
    with client.chat.completions.stream(model=model("plain"), messages=HELLO) as stream:
        kinds = [event.type for event in stream]
        completion = stream.get_final_completion()
    assert completion.choices[0].message.content == ANSWER, completion
    assert kinds.count("content.done") == 1 and "content.delta" in kinds, kinds


def chat_reasoning():
    chunks, _ = chunks_of("thinker", reasoning_effort="medium")
    thought = "".join(getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks)
    assert thought == THOUGHT and text_of(chunks) == "Fourteen.", chunks
    message = chat("thinker", reasoning_effort="medium").choices[0].message
    assert (message.content, message.reasoning_content) == ("Fourteen.", THOUGHT), message


def chat_tool_loop():
    calls = {}
    chunks, finish = chunks_of("tools", tools=chat_tools(), usage=True)
    for call in (call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []):
        if call.index not in calls:
            assert call.id and call.type == "function" and call.function.name, call
            calls[call.index] = [call.id, call.function.name, ""]
        else:
            assert not call.id and not call.function.name, call
        calls[call.index][2] += call.function.arguments or ""
    assert list(calls) == [0, 1] and finish == "tool_calls", (calls, finish)
    expect(calls.values())
    assert text_of(chunks) == "Looking. ", chunks
    with client.chat.completions.stream(model=model("tools"), messages=HELLO, tools=chat_tools()) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_completion().choices[0].message
    assert kinds.count("tool_calls.function.arguments.done") == 2, kinds
    expect(chat_calls_of(message))
    whole = chat("tools", tools=chat_tools()).choices[0]
    assert whole.finish_reason == "tool_calls" and whole.message.content == "Looking. ", whole
    for answered in (list(calls.values()), chat_calls_of(message), chat_calls_of(whole.message)):
        expect(answered)
        # Assistants that say nothing beside their calls have null, and clients echo what was thought.
        for content, more in (("Looking. ", {}), (None, {}), ("", {"reasoning_content": THOUGHT} if OWN_ERRORS else {})):
            back = chat_answered(answered, content, **more)
            assert text_of(chunks_of("tools", back, tools=chat_tools())[0]) == TOLD
        assert chat("tools", chat_answered(answered), tools=chat_tools()).choices[0].message.content == TOLD


def chat_structured():
    parsed = client.chat.completions.parse(model=model("plain"), messages=HELLO, response_format=City)
    assert parsed.choices[0].message.parsed == CITY, parsed
    with client.chat.completions.stream(model=model("plain"), messages=HELLO, response_format=City) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == CITY
    loose = chat("plain", response_format={"type": "json_object"}).choices[0].message.content
    assert json.loads(loose) == {"any": True}, loose


def chat_broken_streams():
    for name in (FAILING,) if KIND == "normalized" else (FAILING, "cut"):
        seen = []

        def read():
            for chunk in chat(name, stream=True):
                seen.append(chunk.choices[0].delta.content or "")

        # Of a connection that breaks without an Edge in front of it the HTTP library speaks.
        error = raised(read)
        assert "".join(seen) == FAILING_TEXT, (name, seen)
        if THROUGH_EDGE and name == "cut":
            assert isinstance(error, openai.APIError) and error.code == "upstream_error", error
        elif name != "cut":
            assert isinstance(error, openai.APIError) and error.code, error


# --- responses


def ask(name, input=GREETING, of=client, **more):
    return of.responses.create(model=model(name), input=input, **more)


def flat_tools():
    return [
        {"type": "function", "name": n, "description": f"Tells {n}.", "parameters": schema(n), "strict": False}
        for n in ("get_weather", "get_time")
    ]


def items_of(response, kind):
    return [item for item in response.output if item.type == kind]


def calls_of(response):
    return [(item.call_id, item.name, item.arguments) for item in items_of(response, "function_call")]


def events_of(name, input=GREETING, **more):
    """Events of a stream and its last response, after what holds for every stream."""
    events = list(ask(name, input, stream=True, **more))
    assert [event.sequence_number for event in events] == list(range(len(events))), events
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"], kinds
    last = events[-1].response
    assert events[0].response.id == last.id and events[0].response.status == "in_progress", events[0]
    assert all(event.response.model == model(name) for event in (events[0], events[-1])), events[0]
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == last.output_text, (deltas, last)
    return events, last


def responses_whole():
    response = ask("plain", instructions="Be kind.", max_output_tokens=50, temperature=0.5, store=False)
    assert response.output_text == ANSWER and response.status == "completed", response
    assert response.usage.input_tokens == PROMPT_TOKENS and response.usage.output_tokens == 4, response
    assert response.object == "response" and response.model == model("plain"), response
    assert response.error is None and (response._request_id or not THROUGH_EDGE), response
    short = ask("short")
    assert (short.status, short.incomplete_details.reason) == ("incomplete", "max_output_tokens"), short
    listed = ask("plain", [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": [{"type": "input_text", "text": GREETING}]}])
    assert listed.output_text == ANSWER, listed


def responses_stream():
    events, last = events_of("plain")
    assert last.output_text == ANSWER and last.status == "completed", last
    assert last.usage.input_tokens == PROMPT_TOKENS and last.usage.output_tokens == 4, last.usage
    events, last = events_of("short")
    assert events[-1].type == "response.incomplete" and last.status == "incomplete", last
    with client.responses.stream(model=model("plain"), input=GREETING) as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == ANSWER
    assert kinds.count("response.output_text.done") == 1, kinds


def responses_reasoning():
    _, last = events_of("thinker", reasoning={"effort": "medium"})
    for response in (last, ask("thinker", reasoning={"effort": "medium"})):
        (thought,) = items_of(response, "reasoning")
        said = "".join(part.text for part in [*(thought.content or []), *thought.summary])
        assert said == THOUGHT and response.output_text == "Fourteen.", response
        # It comes back with the next question.
        back = [{"role": "user", "content": GREETING}, *[item.model_dump(exclude_none=True) for item in response.output]]
        assert ask("plain", [*back, {"role": "user", "content": "And?"}]).output_text == ANSWER


def responses_tool_loop():
    _, streamed = events_of("tools", tools=flat_tools())
    with client.responses.stream(model=model("tools"), input=GREETING, tools=flat_tools()) as stream:
        kinds = [event.type for event in stream]
        helped = stream.get_final_response()
    assert kinds.count("response.function_call_arguments.done") == 2, kinds
    for response in (streamed, helped, ask("tools", tools=flat_tools(), parallel_tool_calls=True)):
        expect(calls_of(response))
        assert response.output_text == "Looking. " and response.status == "completed", response
        results = [
            {"type": "function_call_output", "call_id": call[0], "output": result}
            for call, result in zip(calls_of(response), RESULTS)
        ]
        output = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        for item in output:
            for part in item.get("content", []):
                part.pop("parsed", None)
        back = [{"role": "user", "content": GREETING}, *output, *results]
        assert events_of("tools", back, tools=flat_tools())[1].output_text == TOLD
        assert ask("tools", back, tools=flat_tools()).output_text == TOLD


def responses_structured():
    parsed = client.responses.parse(model=model("plain"), input=GREETING, text_format=City)
    assert parsed.output_parsed == CITY, parsed
    with client.responses.stream(model=model("plain"), input=GREETING, text_format=City) as stream:
        stream.until_done()
        assert stream.get_final_response().output_parsed == CITY


def responses_broken_streams():
    for name in (FAILING,) if KIND == "normalized" else (FAILING, "cut"):
        events = []
        try:
            for event in ask(name, stream=True):
                events.append(event)
        except Exception:
            # Of a raw stream that broke nothing could be said in its place but that.
            assert name == "cut" and KIND in ("direct", "raw"), (name, events)
        seen = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert seen == FAILING_TEXT, (name, events)
        kinds = [event.type for event in events]
        assert "response.completed" not in kinds and "response.incomplete" not in kinds, kinds
        if name != "cut" or OWN_ERRORS:
            assert kinds[-1] == "response.failed" and events[-1].response.error.code, events[-1]


def responses_refused():
    """What cannot be carried is refused, and says which member it is."""
    if not OWN_ERRORS:
        return
    for more, param in (({"previous_response_id": "resp_0"}, "previous_response_id"), ({"background": True}, "background")):
        error = raised(lambda: ask("plain", **more), openai.BadRequestError)
        assert error.param == param, error.body


# --- both


def call_of(name, of=client, **more):
    return chat(name, of=of, **more) if SURFACE == "chat" else ask(name, of=of, **more)


def models():
    if not THROUGH_EDGE:
        return
    listed = list(client.models.list())
    assert model("plain") in [entry.id for entry in listed], listed
    assert all(entry.object == "model" and entry.created and entry.owned_by for entry in listed), listed
    assert client.models.retrieve(model("plain")).id == model("plain")
    assert raised(lambda: client.models.retrieve("none/such"), openai.NotFoundError).code == "model_not_found"


def errors():
    """Class, code and request id of each failure; the provider's own where it speaks the surface."""
    for stream in (False, True):
        for status, kind in ERRORS.items():
            if OWN_ERRORS:
                break
            error = raised(lambda: call_of(f"status-{status}", stream=stream), kind)
            assert type(error) is kind and error.status_code == status, error
            assert f"the script says {status}" in str(error.body), error.body
            assert error.request_id or not THROUGH_EDGE, error
    if not THROUGH_EDGE:
        return
    wrong = openai.OpenAI(base_url=BASE_URL, api_key="wrong", max_retries=0)
    for stream in (False, True):
        error = raised(lambda: call_of("plain", of=wrong, stream=stream), openai.AuthenticationError)
        assert error.code == "invalid_api_key" and error.request_id, error.body
        error = raised(lambda: call_of("none", stream=stream), openai.NotFoundError)
        assert (error.code, error.param) == ("model_not_found", "model") and error.request_id, error.body
        if KIND == "normalized":
            error = raised(lambda: call_of("crashed", stream=stream), openai.InternalServerError)
            assert error.status_code == 502 and error.code == "upstream_error", error
            error = raised(lambda: call_of("busy", stream=stream), openai.InternalServerError)
            assert error.status_code == 503 and 1 <= int(error.response.headers["retry-after"]) <= 60, error


def retries():
    """As many requests as the SDK makes by itself; the test counts them at the provider."""
    if KIND == "normalized":
        calls = [lambda: raised(lambda: call_of("crashed", of=impatient), openai.InternalServerError)]
    else:
        # Models of their own: `errors` has asked the others.
        statuses = [429, 500, 503] if OWN_ERRORS else list(ERRORS)
        calls = [lambda s=s: raised(lambda: call_of(f"retried-{s}", of=impatient), openai.APIStatusError) for s in statuses]
        calls += [lambda s=s: call_of(f"once-{s}", of=impatient) for s in (429, 500, 503)]
    at_once(calls)
    if THROUGH_EDGE:
        # The Edge is sure of these: they are asked once.
        wrong = openai.OpenAI(base_url=BASE_URL, api_key="wrong")
        raised(lambda: call_of("plain", of=wrong), openai.AuthenticationError)
        raised(lambda: call_of("none", of=impatient), openai.NotFoundError)


def many_at_once():
    async def run():
        asynchronous = openai.AsyncOpenAI(base_url=BASE_URL, api_key=TOKEN, max_retries=0, timeout=60)

        async def one():
            if SURFACE == "chat":
                stream = await asynchronous.chat.completions.create(model=model("plain"), messages=HELLO, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            stream = await asynchronous.responses.create(model=model("plain"), input=GREETING, stream=True)
            return "".join([e.delta async for e in stream if e.type == "response.output_text.delta"])

        assert set(await asyncio.gather(*(one() for _ in range(16)))) == {ANSWER}

    asyncio.run(run())


CHECKS = {
    "chat": [chat_whole, chat_stream, chat_reasoning, chat_tool_loop, chat_structured, chat_broken_streams],
    "responses": [
        responses_whole, responses_stream, responses_reasoning, responses_tool_loop, responses_structured,
        responses_broken_streams, responses_refused,
    ],
}
run([*CHECKS[SURFACE], models, errors, retries, many_at_once], f"openai {openai.__version__} (Python)")
