"""Any body of the Responses and Messages APIs becomes a request or an error of the client."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from body_strategies import any_json, jsons, write_object, wrong_value
from fake_engine import FakeEngine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specserve.errors import RequestError
from specserve_server.bodies.messages import CountTokensBody, MessagesBody
from specserve_server.bodies.responses import ResponsesBody
from specserve_server.engines.templated_engine import templated
from specserve_server.messages import serving as messages
from specserve_server.responses import serving as responses
from specserve_server.templates.model_template import read_model_template
from specserve_server.wire.decode_body import decode_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from specserve.text.tokenizer import HfTokenizer
    from specserve_server.engine_client import ServedEngine

text = st.none() | st.sampled_from(["", "a", "call_1", "count"]) | st.text(max_size=3)
kind = st.sampled_from(
    ["message", "function_call", "function_call_output", "reasoning", "input_text", "output_text", "text", "tool_use",
     "tool_result", "image", "function", "web_search", "custom", "auto", "any", "tool", "none", "json_schema"]
)  # fmt: skip
role = st.sampled_from(["user", "assistant", "system", "developer", "tool"])
part = st.fixed_dictionaries({"type": kind}, optional={"text": text})
content = text | st.lists(part, max_size=3)
FIELDS = {
    "role": role,
    "content": content,
    "call_id": text,
    "id": text,
    "name": text,
    "arguments": text | st.just('{"n": 1}'),
    "output": content,
    "tool_use_id": text,
    "text": text,
    "input": st.just({}) | st.just([]) | text,
    "is_error": st.booleans(),
}
item = st.fixed_dictionaries({}, optional={"type": kind, **FIELDS})
turn = st.fixed_dictionaries({"role": role, "content": text | st.lists(item, max_size=3)})
tool = st.fixed_dictionaries(
    {"type": kind, "name": st.sampled_from(["count", "weather"])},
    optional={"parameters": st.just({}) | any_json.map(json.loads), "input_schema": st.just({"type": "object"})},
)
SHARED: dict[str, Any] = {
    "model": jsons(text),
    "tools": jsons(st.lists(tool, max_size=2)),
    "tool_choice": jsons(st.sampled_from(["auto", "none", "required", {"type": "auto"}, {"type": "any"}])),
    "temperature": jsons(st.floats(0, 3)),
    "stream": jsons(st.booleans()),
}
RESPONSES = SHARED | {
    "input": jsons(text | st.lists(item, max_size=5)),
    "instructions": jsons(text),
    "truncation": jsons(st.sampled_from(["auto", "disabled"])),
    "text": jsons(st.fixed_dictionaries({"format": item})),
    "metadata": jsons(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)),
    "conversation": jsons(st.none()),
}
MESSAGES = SHARED | {
    "max_tokens": jsons(st.integers(1, 9)),
    "messages": jsons(st.lists(turn, max_size=5)),
    "system": jsons(content),
    "thinking": jsons(st.just({"type": "disabled"})),
    "stop_sequences": jsons(st.lists(st.text(max_size=2), max_size=3)),
    "output_config": jsons(st.fixed_dictionaries({"format": item})),
}


@st.composite
def bodies(draw: Any, fields: dict[str, Any], required: tuple[str, ...]) -> bytes:
    """Most fields as they should be, some of them anything."""
    names = dict.fromkeys((*required, *draw(st.lists(st.sampled_from(sorted(fields)), max_size=4, unique=True))))
    return write_object([(name, draw(fields[name] if draw(st.integers(0, 7)) else wrong_value)) for name in names])


@pytest.fixture(scope="module")
def engine(tool_tokenizer: HfTokenizer) -> ServedEngine:
    return templated(FakeEngine(tool_tokenizer), read_model_template(tool_tokenizer.path))


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Counter[str]]:
    """A run that serves or refuses next to nothing proves nothing."""
    counts: Counter[str] = Counter()
    yield counts
    assert min(counts["served"], counts["refused"]) > 50, counts


def attempt(prepare: Callable[[], object], outcomes: Counter[str]) -> None:
    refused = None
    try:
        prepare()
    except RequestError as error:
        refused = str(error)
        refused.encode()
    outcomes["served" if refused is None else "refused"] += 1
    assert refused != ""


def keep(response: Any, messages: Any) -> None:
    pytest.fail("nothing is generated here")


FUZZ = settings(derandomize=True, database=None, max_examples=500, suppress_health_check=[HealthCheck.too_slow])


@settings(FUZZ)
@given(data=bodies(RESPONSES, ("input",)))
def test_a_body_of_responses_becomes_a_request_or_an_error_of_the_client(
    engine: FakeEngine, outcomes: Counter[str], data: bytes
) -> None:
    def prepare() -> None:
        responses.prepare_answer(engine, decode_body(data, ResponsesBody), "toy", "", history=(), keep=keep)

    attempt(prepare, outcomes)


@settings(FUZZ)
@given(data=bodies(MESSAGES, ("messages", "max_tokens")))
def test_a_body_of_messages_becomes_a_request_or_an_error_of_the_client(
    engine: FakeEngine, outcomes: Counter[str], data: bytes
) -> None:
    def prepare() -> None:
        messages.count_prompt(engine, decode_body(data, CountTokensBody))
        messages.prepare_answer(engine, decode_body(data, MessagesBody), "toy", "")

    attempt(prepare, outcomes)
