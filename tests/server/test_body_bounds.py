"""Bodies that nest too deeply or have too many values, and prompts of nothing: what is too much, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tiny_tokenizer import write_model_dir

from specserve.errors import RequestError
from specserve.text.tokenizer import HfTokenizer
from specserve_server.bodies.requests import ChatBody, CompletionBody
from specserve_server.limits import MAX_BODY_DEPTH, MAX_BODY_VALUES
from specserve_server.wire.decode_body import decode_body
from specserve_server.wire.json_depth import field_of_depth

if TYPE_CHECKING:
    from pathlib import Path

DEEP = b"[" * 5000 + b"]" * 5000
TOO_DEEP = f"it nests too deeply; at most {MAX_BODY_DEPTH} lists and objects within each other are read."


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b'{"prompt": "[[", "x": [1], "guided_json": {"a": %b}}' % DEEP, "guided_json"),
        (b'{"a\\"b[": "c", "a\\"b\\\\": %b}' % DEEP, 'a\\"b\\\\'),
        (b'{"x": ' + b'{"y":' * 5000 + b"1" + b"}" * 5001, "x"),
    ],
)
def test_a_body_that_nests_too_deeply_is_told_the_field_and_the_limit(data: bytes, name: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode_body(data, CompletionBody)
    assert (str(caught.value), caught.value.param) == (f"{name}: {TOO_DEEP}", name)


def test_what_is_as_deep_as_allowed_is_read() -> None:
    num = MAX_BODY_DEPTH - 1  # the body itself is the first
    data = b'{"prompt": "a", "x": %b%b}' % (b"[" * num, b"]" * num)
    assert decode_body(data, CompletionBody).prompt == "a"
    assert field_of_depth(data, MAX_BODY_DEPTH) is None
    assert field_of_depth(data, MAX_BODY_DEPTH - 1) == "x"


MANY = MAX_BODY_VALUES + 1


@pytest.mark.parametrize(
    ("data", "what", "count"),
    [
        (b'{"messages": [%b]}' % b",".join([b'"a"'] * MANY), "strings, keys among them", MANY + 1),
        (b'{"messages": [%b]}' % b",".join([b"[]"] * MANY), "lists and objects", MANY + 2),
    ],
)
def test_a_body_of_too_many_values_is_told_how_many_and_the_limit(data: bytes, what: str, count: int) -> None:
    with pytest.raises(RequestError) as caught:
        decode_body(data, ChatBody)
    assert str(caught.value) == (
        f"the body has too many {what}: at most {MAX_BODY_VALUES} are read; got {count}; send less at once, "
        "and prompts as texts or token ids."
    )


async def test_messages_of_which_the_template_makes_nothing_are_told_what_to_send(
    connect: Any, engine: Any, tmp_path: Path
) -> None:
    write_model_dir(tmp_path, "{{ messages[0].content }}")
    engine.tokenizer = HfTokenizer.from_dir(tmp_path)
    client = await connect(engine)
    for path, body in {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": ""}]},
        "/v1/messages": {"max_tokens": 5, "messages": [{"role": "user", "content": ""}]},
        "/v1/responses": {"input": ""},
    }.items():
        response = await client.post(path, json=body)
        message = (await response.json())["error"]["message"]
        assert response.status == 400
        assert message.startswith("input: " if "input" in body else "messages: ")
        assert "makes no text of them" in message
        assert "send a message with text" in message
    response = await client.post("/v1/completions", json={"prompt": ""})
    assert (await response.json())["error"]["message"] == (
        "prompt: it has no tokens, and an answer needs one before it; send a text, or the id of a token that begins "
        "texts."
    )
