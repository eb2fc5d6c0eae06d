"""What the Python scripts share. Each runs as SCRIPT BASE_URL TOKEN SURFACE KIND [CHECK...]; KIND is how the requests run:
direct (no Edge: it proves the script), raw, translated, normalized. It exits with 0 when every check holds, and says of each that does not why.

The models are those of tests/src/model/plot.rs, of `normalized` those of tests/src/ollama/models.rs.
"""
import concurrent.futures
import sys
import traceback

BASE_URL, TOKEN, SURFACE, KIND, *ONLY = sys.argv[1:]
# An Edge has providers of all kinds, and whose a model is stands in front of its name.
PREFIX = {
    ("direct", "chat"): "", ("direct", "responses"): "", ("direct", "messages"): "", ("raw", "chat"): "chat/",
    ("raw", "responses"): "openai/", ("raw", "messages"): "anthropic/",
}.get((KIND, SURFACE), "chat/" if KIND == "translated" else "")
GREETING = "Hello 你好🌍"
ANSWER = "Hello 你好🌍!"
THOUGHT = "Two times seven…"
TOLD = "get_weather=18 °C; get_time=noon; "
RESULTS = ["18 °C", "noon"]
BOTH = [("get_weather", "Paris"), ("get_time", "Seoul")]
PROMPT_TOKENS = 26
THROUGH_EDGE = KIND != "direct"
OWN_ERRORS = KIND in ("translated", "normalized")
FAILING = "crashing" if KIND == "normalized" else "failing"
FAILING_TEXT = "It was fine" if KIND == "normalized" else "It was "


def model(name):
    return PREFIX + name


def schema(name):
    return {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def at_once(calls):
    """Runs them beside each other: they wait more than they do."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(calls)) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result()


def raised(call, kind=Exception):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}")


def run(checks, name):
    failed = []
    for check in checks:
        if ONLY and check.__name__ not in ONLY:
            continue
        try:
            check()
        except Exception:
            failed.append(check.__name__)
            print(f"--- {check.__name__}")
            traceback.print_exc(file=sys.stdout)
    if failed:
        sys.exit(f"{name}, {SURFACE}, {KIND}: failed: {', '.join(failed)}")
    print(f"{name}, {SURFACE}, {KIND}: {len(checks)} checks ok")
