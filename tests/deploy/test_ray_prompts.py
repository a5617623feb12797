"""What the router is told of a request: a namespace, an adapter, and hashes of blocks of its text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specserve.namespaces import namespace_of
from specserve_ray.prompts import MAX_BLOCKS, routing_key
from specserve_ray.wire import RoutingKey

NAMES = ("served", "demo")
BLOCK = 16
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def read(path: str, **body: Any) -> RoutingKey:
    return routing_key(path, json.dumps(body).encode(), NAMES, BLOCK)


def shared(one: RoutingKey, other: RoutingKey) -> int:
    """Blocks that both begin with."""
    pairs = list(zip(one.chain, other.chain, strict=False))
    return next((index for index, (a, b) in enumerate(pairs) if a != b), len(pairs))


def turns(number: int) -> list[dict[str, str]]:
    return [
        {"role": "user" if turn % 2 == 0 else "assistant", "content": f"turn {turn} " * 8} for turn in range(number)
    ]


def test_the_next_turn_of_a_conversation_begins_with_all_blocks_of_the_last_one() -> None:
    for number in range(1, 6):
        before, after = read(CHAT, messages=turns(number)), read(CHAT, messages=turns(number + 2))
        assert shared(before, after) == len(before.chain) > 0


@pytest.mark.parametrize(
    ("path", "field", "one", "more"),
    [
        (COMPLETIONS, "prompt", "abc " * 30, "abc " * 30 + "more " * 20),
        (COMPLETIONS, "prompt", list(range(100, 160)), list(range(100, 200))),
        ("/v1/messages", "messages", turns(1), turns(3)),
        ("/v1/responses", "input", turns(1), turns(3)),
        ("/v1/responses", "input", "abc " * 30, "abc " * 30 + "more"),
    ],
)
def test_a_longer_prompt_of_any_api_begins_with_the_shorter_one(path: str, field: str, one: Any, more: Any) -> None:
    before, after = read(path, **{field: one}), read(path, **{field: more})
    assert shared(before, after) == len(before.chain) > 0


@pytest.mark.parametrize("field", ["tools", "system", "instructions"])
def test_what_stands_before_the_messages_counts(field: str) -> None:
    given = [{"type": "function", "function": {"name": "f"}}] if field == "tools" else "Be brief, and be kind."
    assert shared(read(CHAT, messages=turns(2)), read(CHAT, messages=turns(2), **{field: given})) == 0


def test_fields_that_are_not_in_the_prompt_change_nothing() -> None:
    assert read(CHAT, messages=turns(2)) == read(CHAT, messages=turns(2), temperature=0.3, stream=True, user="me")


def test_an_adapter_and_a_salt_make_a_namespace_of_their_own() -> None:
    base = read(CHAT, messages=turns(2))
    salted = read(CHAT, messages=turns(2), cache_salt="team")
    adapted = read(CHAT, messages=turns(2), model="docs")
    assert (base.namespace, salted.namespace, adapted.namespace) == ("", namespace_of("", "team"), "docs")
    assert shared(base, salted) == shared(base, adapted) == shared(salted, adapted) == 0


@pytest.mark.parametrize(
    ("model", "adapter"),
    [("demo", ""), ("served", ""), (None, ""), ("docs", "docs"), ("served:docs", "docs"), ("a:b", "a:b")],
)
def test_models_are_known_by_the_names_of_the_server(model: str | None, adapter: str) -> None:
    assert read(CHAT, messages=turns(1), model=model).adapter == adapter


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"model": 5, "prompt": "a"}', b'{"prompt": "a", "cache_salt": []}']
)
def test_what_is_no_prompt_has_an_empty_key(body: bytes) -> None:
    assert routing_key(COMPLETIONS, body, NAMES, BLOCK) == RoutingKey()


def test_other_routes_have_an_empty_key() -> None:
    assert read("/tokenize", prompt="abc " * 100) == RoutingKey()


def test_a_short_prompt_has_no_block_and_a_long_one_is_cut() -> None:
    assert read(COMPLETIONS, prompt="a").chain == ()
    assert len(read(COMPLETIONS, prompt="a" * (BLOCK * MAX_BLOCKS + 500)).chain) == MAX_BLOCKS
    assert len(read(COMPLETIONS, prompt="a" * 31).chain) == 2, 'the opening " is text'
