"""Fields of one route that another does not serve: ignored where they change nothing, else refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from specserve_server.bodies.known_fields import IGNORED, REFUSED, RENAMED
from specserve_server.bodies.messages import MessagesBody
from specserve_server.bodies.messages_names import IGNORED as IGNORED_BY_MESSAGES
from specserve_server.bodies.requests import ChatBody, CompletionBody
from specserve_server.bodies.responses import ResponsesBody
from specserve_server.bodies.responses_names import IGNORED as IGNORED_BY_RESPONSES
from specserve_server.wire.field_rules import refusals

if TYPE_CHECKING:
    from fake_engine import FakeEngine

RESPONSES, MESSAGES, COUNT = "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"
USER = {"role": "user", "content": "a"}
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BODIES: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "a", "max_tokens": 2},
    CHAT: {"messages": [USER], "max_tokens": 2},
    RESPONSES: {"input": "a", "max_output_tokens": 2},
    MESSAGES: {"messages": [USER], "max_tokens": 2},
}
TYPES = {RESPONSES: ResponsesBody, MESSAGES: MessagesBody, CHAT: ChatBody, COMPLETIONS: CompletionBody}
STRICT = {"strict_fields": True}
both_routes = pytest.mark.parametrize("path", [RESPONSES, MESSAGES])


async def post(client: Any, path: str, **fields: Any) -> tuple[int, str]:
    """Status, and the message of the error."""
    response = await client.post(path, json={**BODIES.get(path, {}), **fields})
    body = await response.json()
    return response.status, body["error"]["message"] if response.status != 200 else ""


CHANGES: list[tuple[str, str, Any, str]] = [
    (CHAT, "max_output_tokens", 5, "it is a field of /v1/responses"),
    (CHAT, "instructions", "be kind", "send messages that begin with one of the role system"),
    (COMPLETIONS, "output_config", {"effort": "low"}, "it is a field of /v1/messages"),
    (RESPONSES, "max_tokens", 5, "send max_output_tokens"),
    (RESPONSES, "max_new_tokens", 5, "send max_output_tokens"),
    (RESPONSES, "messages", [USER], "send input"),
    (RESPONSES, "system", "be kind", "send instructions"),
    (RESPONSES, "response_format", {"type": "json_object"}, "send text.format"),
    (RESPONSES, "reasoning_effort", "low", "send reasoning.effort"),
    (RESPONSES, "stop", ["x"], "it is a field of /v1/chat/completions"),
    (RESPONSES, "n", 2, "it is a field of /v1/chat/completions"),
    (RESPONSES, "num_return_sequences", 2, "it is a field of /v1/chat/completions"),
    (RESPONSES, "presence_penalty", 0.5, "it is a field of /v1/chat/completions"),
    (RESPONSES, "echo", True, "it is a field of /v1/completions"),
    (RESPONSES, "thinking", {"type": "enabled"}, "chat_template_kwargs"),
    (MESSAGES, "stop", ["x"], "send stop_sequences"),
    (MESSAGES, "instructions", "be kind", "send system"),
    (MESSAGES, "input", "a", "send messages"),
    (MESSAGES, "max_output_tokens", 5, "send max_tokens"),
    (MESSAGES, "output_format", {"type": "json_schema"}, "send output_config.format"),
    (MESSAGES, "previous_response_id", "resp_1", "it is a field of /v1/responses"),
    (MESSAGES, "min_p", 0.5, "it is a field of /v1/chat/completions"),
    (MESSAGES, "use_beam_search", True, "beam search is not served"),
]


@pytest.mark.parametrize(("path", "name", "value", "advice"), CHANGES, ids=lambda value: str(value)[:30])
async def test_a_field_that_would_change_the_answer_is_refused_with_advice(
    client: Any, engine: FakeEngine, path: str, name: str, value: Any, advice: str
) -> None:
    status, message = await post(client, path, **{name: value})
    assert status == 400
    assert message.startswith(f"{name}: ")
    assert advice in message
    assert engine.submitted == []


@pytest.mark.parametrize("path", BODIES)
async def test_what_is_refused_is_accepted_with_each_value_that_changes_nothing(
    client: Any, connect: Any, engine: FakeEngine, path: str
) -> None:
    strict = await connect(engine, **STRICT)
    rules = refusals(TYPES[path])
    assert rules.keys() >= (REFUSED.keys() | RENAMED.keys()) - set(TYPES[path].__struct_fields__) - IGNORED
    for name, refusal in rules.items():
        for value in (None, *refusal.neutral):
            for server in (client, strict):
                assert (await post(server, path, **{name: value}))[0] == 200, (name, value)
        for value in (7, "x", [1], {"a": 1}):
            status, message = await post(client, path, **{name: value})
            assert (status, message.partition(":")[0]) == (400, name), (name, value)


@both_routes
async def test_fields_that_change_no_answer_are_ignored_by_strict_servers_too(
    client: Any, connect: Any, engine: FakeEngine, path: str
) -> None:
    strict = await connect(engine, **STRICT)
    for name in IGNORED | (IGNORED_BY_RESPONSES if path == RESPONSES else IGNORED_BY_MESSAGES):
        for value in (None, *(() if name in TYPES[path].__struct_fields__ else (5, "x", {"a": [1]}))):
            assert (await post(client, path, **{name: value}))[0] == 200, (name, value)
            assert (await post(strict, path, **{name: value}))[0] == 200, (name, value)


@both_routes
async def test_a_name_that_nobody_defines_is_refused_by_a_strict_server(
    client: Any, connect: Any, engine: FakeEngine, path: str
) -> None:
    assert (await post(client, path, temprature=0))[0] == 200
    status, message = await post(await connect(engine, **STRICT), path, temprature=0)
    assert status == 400
    assert "did you mean temperature?" in message


async def test_a_strict_server_counts_the_tokens_of_the_body_of_a_message(connect: Any, engine: FakeEngine) -> None:
    strict = await connect(engine, **STRICT)
    body = {**BODIES[MESSAGES], "temperature": 1, "stop_sequences": ["x"], "cache_control": {"type": "ephemeral"}}
    assert (await post(strict, COUNT, **body))[0] == 200
    status, message = await post(strict, COUNT, **body, mesages=[])
    assert (status, "did you mean messages?" in message) == (400, True)
    assert (await post(strict, COUNT, **body, instructions="be kind"))[0] == 400
