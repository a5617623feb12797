"""Fields that the server does not serve: ignored where they change nothing, else refused by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from specserve_server.bodies.known_fields import IGNORED, REFUSED, RENAMED
from specserve_server.bodies.requests import ChatBody, CompletionBody, TokenizeBody

if TYPE_CHECKING:
    from fake_engine import FakeEngine

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BODIES: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "a", "max_tokens": 2},
    CHAT: {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2},
}
STRICT = {"strict_fields": True}
PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
both_routes = pytest.mark.parametrize("path", BODIES)

CHANGES: list[tuple[str, Any]] = [
    ("chat_template", "{{ 1 }}"), ("functions", [{"name": "f"}]), ("function_call", {"name": "f"}),
    ("modalities", ["text", "audio"]), ("audio", {"voice": "x"}), ("web_search_options", {}), ("suffix", "b"),
    ("use_beam_search", True), ("length_penalty", 0.5), ("early_stopping", True), ("do_sample", False),
    ("logits_processors", ["x"]), ("logits_bias", {"5": 1}), ("max_new_tokens", 5), ("stop_sequences", ["x"]),
    ("thinking_token_budget", 10), ("include_reasoning", False), ("truncation_side", "right"), ("input", "b"),
    ("logprob_token_ids", [1]), ("return_tokens_as_token_ids", True), ("kv_transfer_params", {"a": 1}),
    ("vllm_xargs", {"a": 1}), ("prompt_embeds", "x" * 10**6), ("enable_thinking", False), ("regex", "a+"),
    ("lora_path", "x"), ("random_seed", 7), ("mirostat", 2), ("best_of", 2), ("moderation", {"mode": "block"}),
]  # fmt: skip


async def post(client: Any, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    response = await client.post(path, json={**BODIES[path], **fields})
    return response.status, await response.json()


@both_routes
@pytest.mark.parametrize(("name", "value"), CHANGES, ids=[name for name, _ in CHANGES])
async def test_a_field_that_would_change_the_answer_is_refused_by_name(
    client: Any, engine: FakeEngine, path: str, name: str, value: Any
) -> None:
    status, body = await post(client, path, **{name: value})
    assert (status, body["error"]["param"]) == (400, name)
    assert body["error"]["message"].startswith(name)
    assert engine.submitted == []


@both_routes
async def test_every_refused_field_is_accepted_with_each_value_that_changes_nothing(client: Any, path: str) -> None:
    for name, refusal in REFUSED.items():
        if not (path == CHAT and name == "prompt"):
            for value in (None, *refusal.neutral):
                assert (await post(client, path, **{name: value}))[0] == 200, (name, value)
    for name in RENAMED:
        for value in (None, False, "", [], {}):
            assert (await post(client, path, **{name: value}))[0] == 200, (name, value)


@both_routes
async def test_no_refused_field_is_accepted_with_another_value(client: Any, path: str) -> None:
    served = (CompletionBody if path == COMPLETIONS else ChatBody).__struct_fields__
    for name in (REFUSED | RENAMED).keys() - set(served):
        for value in (7, "x", [1], {"a": 1}):
            status, body = await post(client, path, **{name: value})
            assert (status, body["error"]["param"]) == (400, name), (name, value)


@pytest.mark.parametrize("names", [("suffix", "use_beam_search"), ("use_beam_search", "suffix")], ids="-".join)
async def test_of_several_refused_fields_the_first_is_told(client: Any, names: tuple[str, str]) -> None:
    values = dict(CHANGES)
    response = await client.post(CHAT, json={**{name: values[name] for name in names}, **BODIES[CHAT]})
    assert (response.status, (await response.json())["error"]["param"]) == (400, names[0])


@both_routes
async def test_fields_that_change_no_answer_are_ignored(client: Any, connect: Any, engine: FakeEngine, path: str):
    strict = await connect(engine, **STRICT)
    for name in IGNORED:
        for value in (True, 5, "x", {"a": [1]}):
            assert (await post(client, path, **{name: value}))[0] == 200
            assert (await post(strict, path, **{name: value}))[0] == 200


@pytest.mark.parametrize(
    ("path", "name", "value", "owner"),
    [
        (COMPLETIONS, "messages", [{"role": "user", "content": "b"}], CHAT),
        (COMPLETIONS, "top_logprobs", 3, CHAT),
        (COMPLETIONS, "tools", [{"type": "function", "function": {"name": "f"}}], CHAT),
        (COMPLETIONS, "chat_template_kwargs", {"a": 1}, CHAT),
        (COMPLETIONS, "continue_final_message", True, CHAT),
        (COMPLETIONS, "reasoning_effort", "high", CHAT),
        (CHAT, "prompt", "b", COMPLETIONS),
        (CHAT, "echo", True, COMPLETIONS),
    ],
)
async def test_a_field_of_the_other_route_is_refused(client: Any, path: str, name: str, value: Any, owner: str) -> None:
    status, body = await post(client, path, **{name: value})
    assert (status, body["error"]["param"]) == (400, name)
    assert owner in body["error"]["message"]
    assert (await post(client, path, **{name: None}))[0] == 200


@both_routes
async def test_a_name_that_nobody_defines_is_ignored_unless_the_server_is_strict(
    client: Any, connect: Any, engine: FakeEngine, path: str
) -> None:
    assert (await post(client, path, temprature=0))[0] == 200
    strict = await connect(engine, **STRICT)
    status, body = await post(strict, path, temprature=0)
    assert (status, body["error"]["param"], body["error"]["code"]) == (400, "temprature", "unknown_field")
    assert "did you mean temperature?" in body["error"]["message"]
    status, body = await post(strict, path, **{"q" * 10**6: 0})
    assert (status, len(body["error"]["param"])) == (400, 64)
    assert (await post(strict, path, temperature=0, seed=None, user="x"))[0] == 200


async def test_a_strict_server_tokenizes_the_body_of_a_chat(connect: Any, engine: FakeEngine) -> None:
    strict = await connect(engine, **STRICT)
    body = BODIES[CHAT] | {"temperature": 1, "stream": True, "user": "x"}
    assert (await strict.post("/tokenize", json=body)).status == 200
    response = await strict.post("/tokenize", json=body | {"mesages": []})
    assert "did you mean messages?" in (await response.json())["error"]["message"]


@both_routes
async def test_max_completion_tokens_goes_before_max_tokens(client: Any, path: str) -> None:
    _, body = await post(client, path, max_completion_tokens=3)
    assert body["usage"]["completion_tokens"] == 3


@both_routes
async def test_the_client_names_the_response_and_may_use_the_name_twice(
    client: Any, engine: FakeEngine, path: str
) -> None:
    for _ in range(2):
        _, body = await post(client, path, request_id="mine 1", n=2)
        assert body["id"] == ("cmpl" if path == COMPLETIONS else "chatcmpl") + "-mine 1"
    assert len({request.request_id for request in engine.submitted}) == 4
    assert (await post(client, path, request_id="x" * 257))[0] == 400


async def test_add_special_tokens_is_served_for_chat_too(
    client: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bool] = []
    encode = type(engine.tokenizer).encode

    def record(tokenizer: Any, text: str, *, add_special_tokens: bool = True) -> list[int]:
        given.append(add_special_tokens)
        return encode(tokenizer, text, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(type(engine.tokenizer), "encode", record)
    for value in (None, False, True):
        await post(client, CHAT, add_special_tokens=value, max_tokens=1)
    assert [given[0], given[2], given[4]] == [False, False, True]


def test_the_page_names_every_field() -> None:
    listed = set(re.findall(r"`([a-z_]+)`", PAGE.partition("### Fields")[2].partition("\n### Tools")[0]))
    bodies = {name for body in (ChatBody, CompletionBody, TokenizeBody) for name in body.__struct_fields__}
    assert bodies | IGNORED | set(REFUSED) | set(RENAMED) <= listed
    assert not IGNORED & (REFUSED.keys() | RENAMED.keys() | bodies)


async def test_duplicate_keys_count_once_the_last_one(client: Any, engine: FakeEngine) -> None:
    data = b'{"prompt": "a", "suffix": "x", "suffix": null, "max_tokens": 9, "max_tokens": 2}'
    response = await client.post(COMPLETIONS, data=data)
    assert (response.status, json.loads(await response.read())["usage"]["completion_tokens"]) == (200, 2)
