"""The newest `openai` SDK against an Edge. usage: openai_client.py BASE_URL TOKEN MODEL scripted|engine|leaving|overloaded

Exits with 0 when every check holds. All but `engine` steer iop-perf's provider by the `user` field.
"""
import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import openai

BASE_URL, TOKEN, MODEL, CHECKS = sys.argv[1:]
HELLO = [{"role": "user", "content": "Hello 你好🌍"}]


def client(token=TOKEN, **options):
    # Retries would hide what the Edge answers.
    return openai.OpenAI(base_url=BASE_URL, api_key=token, max_retries=0, timeout=60, **options)


def refused(kind, status, code, call):
    """Calls and expects the SDK's own error class, with the status, code and request id in it."""
    try:
        call()
    except kind as error:
        assert error.status_code == status, error
        assert error.code == code, (error.code, code)
        assert error.request_id, "the SDK finds the request id"
        assert error.body and error.body["message"], error.body
        return error
    raise AssertionError(f"expected {kind.__name__}")


def whole(**more):
    completion = client().chat.completions.create(model=MODEL, messages=HELLO, **more)
    assert completion.object == "chat.completion"
    assert completion.choices[0].message.content
    assert completion.choices[0].finish_reason in ("stop", "length"), completion
    assert completion.usage.completion_tokens > 0
    assert completion._request_id, "x-request-id reaches the SDK"
    return completion


def stream(**more):
    text, finish, usage = "", None, None
    options = {"include_usage": True}
    with client().chat.completions.create(
        model=MODEL, messages=HELLO, stream=True, stream_options=options, **more
    ) as events:
        for chunk in events:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
    assert text and finish in ("stop", "length"), (text, finish)
    assert usage and usage.completion_tokens > 0, usage
    return text


def models():
    listed = [model.id for model in client().models.list()]
    assert MODEL in listed, listed
    assert client().models.retrieve(MODEL).id == MODEL
    refused(openai.NotFoundError, 404, "model_not_found", lambda: client().models.retrieve("no-such-model"))


def typed_errors():
    ask = lambda c, **more: c.chat.completions.create(**{"model": MODEL, "messages": HELLO, **more})
    refused(openai.AuthenticationError, 401, "invalid_api_key", lambda: ask(client("wrong")))
    refused(openai.AuthenticationError, 401, "invalid_api_key", lambda: ask(client("wrong"), stream=True))
    refused(openai.NotFoundError, 404, "model_not_found", lambda: ask(client(), model="no-such-model"))
    refused(openai.BadRequestError, 400, None, lambda: ask(client(), stream="yes"))
    bad_json = lambda: client().post("/chat/completions", cast_to=object, content=b'{"model":')
    refused(openai.BadRequestError, 400, None, bad_json)
    large = [{"role": "user", "content": "x" * 300_000}]
    refused(openai.APIStatusError, 413, None, lambda: ask(client(), messages=large))


def upstream_errors():
    ask = lambda script, **more: client().chat.completions.create(
        model=MODEL, messages=HELLO, user=f"perf:{script}", **more
    )
    refused(openai.InternalServerError, 502, "upstream_error", lambda: ask("no-reply"))
    for script in ("status=429 error-body=openai",):
        try:
            ask(script)
            raise AssertionError("a 429 is a RateLimitError")
        except openai.RateLimitError as error:
            assert error.status_code == 429
    # A stream that breaks is an error in the SDK, too, and never an end like any other.
    seen = 0
    try:
        for _ in ask("events=20 truncate-after=5", stream=True):
            seen += 1
        raise AssertionError("a broken stream ended normally")
    except openai.APIError as error:
        assert error.code == "upstream_error", error
    assert seen == 6, seen


def many_at_once():
    async def run():
        asynchronous = openai.AsyncOpenAI(base_url=BASE_URL, api_key=TOKEN, max_retries=0, timeout=60)

        async def one():
            text = ""
            async for chunk in await asynchronous.chat.completions.create(
                model=MODEL, messages=HELLO, stream=True, user="perf:events=10 gap=5ms"
            ):
                text += "".join(choice.delta.content or "" for choice in chunk.choices)
            return text

        texts = await asyncio.gather(*(one() for _ in range(16)))
        assert len(set(texts)) == 1 and texts[0]

    asyncio.run(run())


def leaving():
    for _ in range(5):
        with client().chat.completions.create(
            model=MODEL, messages=HELLO, stream=True, user="perf:events=100000 gap=5ms"
        ) as events:
            for number, _ in enumerate(events):
                if number == 5:
                    break
        started = time.monotonic()
        whole()
        assert time.monotonic() - started < 5, "the only slot came back at once"


def overloaded():
    """One slot that is taken, one place in the queue, a short wait in it."""
    ask = lambda **more: client().chat.completions.create(model=MODEL, messages=HELLO, **more)
    retry_after = lambda error: int(error.response.headers["retry-after"])
    with ask(stream=True, user="perf:events=100000 gap=5ms") as running, ThreadPoolExecutor() as pool:
        next(iter(running))
        # Two at once: one waits until its time is over, the other finds its place taken.
        outcomes = [pool.submit(ask) for _ in range(2)]
        errors = [outcome.exception() for outcome in outcomes]
    full = [error for error in errors if isinstance(error, openai.RateLimitError)]
    late = [error for error in errors if isinstance(error, openai.InternalServerError)]
    assert len(full) == 1 and len(late) == 1, errors
    assert (full[0].status_code, full[0].code) == (429, "rate_limit_exceeded"), full
    assert (late[0].status_code, late[0].code) == (503, "overloaded"), late
    for error in errors:
        assert 1 <= retry_after(error) <= 60 and error.request_id, error
    # With its retries, which heed that header, an SDK gets through when the slot is free.
    patient = openai.OpenAI(base_url=BASE_URL, api_key=TOKEN, max_retries=5, timeout=60)
    assert patient.chat.completions.create(model=MODEL, messages=HELLO).choices[0].message.content


if CHECKS == "scripted":
    checks = [whole, stream, models, typed_errors, upstream_errors, many_at_once]
elif CHECKS == "engine":
    checks = [lambda: whole(max_tokens=12), lambda: stream(max_tokens=12), models]
elif CHECKS == "overloaded":
    checks = [overloaded]
else:
    checks = [leaving]
for check in checks:
    check()
print(f"openai {openai.__version__}: {CHECKS} ok")
