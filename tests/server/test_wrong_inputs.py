"""Every wrong input gets OpenAI's error body and the right status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from specserve.errors import QueueFullError
from specserve_server.bodies.requests import ChatBody
from specserve_server.wire.decode_body import decode_body

if TYPE_CHECKING:
    from fake_engine import FakeEngine

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "a"}]

WRONG: list[tuple[str, dict[str, Any], str | None]] = [
    (COMPLETIONS, {}, "prompt"),
    (COMPLETIONS, {"prompt": []}, "prompt"),
    (COMPLETIONS, {"prompt": [[]]}, "prompt"),
    (COMPLETIONS, {"prompt": ""}, "prompt"),
    (COMPLETIONS, {"prompt": ["a", 1]}, "prompt"),
    (COMPLETIONS, {"prompt": [-1]}, "prompt"),
    (COMPLETIONS, {"prompt": [10**30]}, "prompt"),
    (COMPLETIONS, {"prompt": {"a": 1}}, "prompt"),
    (COMPLETIONS, {"prompt": ["a"] * 1025}, "prompt"),
    (COMPLETIONS, {"prompt": ["a"] * 20, "n": 100}, "n"),
    (COMPLETIONS, {"prompt": "a", "n": 0}, "n"),
    (COMPLETIONS, {"prompt": "a", "n": 10**9}, "n"),
    (COMPLETIONS, {"prompt": "a", "best_of": 2}, "best_of"),
    (COMPLETIONS, {"prompt": "a", "max_tokens": 0}, "max_tokens"),
    (COMPLETIONS, {"prompt": "a", "max_tokens": "many"}, "max_tokens"),
    (COMPLETIONS, {"prompt": "a", "max_tokens": 2**40}, "max_tokens"),
    (COMPLETIONS, {"prompt": "a", "stop": ["x"] * 99}, "stop"),
    (COMPLETIONS, {"prompt": "a", "stop": ""}, "stop"),
    (COMPLETIONS, {"prompt": "a", "stop": "x" * 10**5}, "stop"),
    (COMPLETIONS, {"prompt": "a", "logprobs": 1001}, "logprobs"),
    (COMPLETIONS, {"prompt": "a", "logit_bias": {"x": 1}}, "logit_bias"),
    (COMPLETIONS, {"prompt": "a", "logit_bias": {"5": 1, "05": 2}}, "logit_bias"),
    (COMPLETIONS, {"prompt": "a", "logit_bias": {" 5": 1}}, "logit_bias"),
    (COMPLETIONS, {"prompt": "a", "logit_bias": {"1_0": 1}}, "logit_bias"),
    (COMPLETIONS, {"prompt": "a", "logit_bias": {"٥": 1}}, "logit_bias"),
    (COMPLETIONS, {"prompt": "a", "logit_bias": {str(i): 1 for i in range(2000)}}, "logit_bias"),
    (COMPLETIONS, {"prompt": "a", "bad_words": [" "]}, "bad_words"),
    (COMPLETIONS, {"prompt": "a", "bad_words": ["x"] * 129}, "bad_words"),
    (COMPLETIONS, {"prompt": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    (COMPLETIONS, {"prompt": "a", "suffix": "b"}, "suffix"),
    (COMPLETIONS, {"prompt": "a", "seed": 2**80}, "seed"),
    (COMPLETIONS, {"prompt": "a", "speculation": {"max_draft_tokens": -1}}, "speculation"),
    (COMPLETIONS, {"prompt": "a", "stream": "yes"}, "stream"),
    (CHAT, {}, "messages"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": [{"content": "a"}]}, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages"),
    (CHAT, {"messages": MESSAGES, "top_logprobs": 2}, "top_logprobs"),
    (CHAT, {"messages": MESSAGES, "max_tokens": 0}, "max_tokens"),
    (CHAT, {"messages": MESSAGES, "max_tokens": 2, "max_completion_tokens": 0}, "max_completion_tokens"),
    (CHAT, {"messages": MESSAGES, "tools": [{"type": "function"}]}, "tools"),
    (CHAT, {"messages": MESSAGES, "response_format": {"type": "yaml"}}, "response_format"),
    ("/tokenize", {}, "prompt"),
    ("/tokenize", {"prompt": "a", "messages": MESSAGES}, "messages"),
    ("/detokenize", {}, "tokens"),
]


@pytest.mark.parametrize(("path", "body", "param"), WRONG)
async def test_a_wrong_field_is_a_400_that_names_it(
    client: Any, engine: FakeEngine, path: str, body: dict[str, Any], param: str | None
) -> None:
    response = await client.post(path, json=body)
    error = (await response.json())["error"]
    assert (response.status, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert len(error["message"]) <= 1000
    assert engine.submitted == []


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'"a"', b'{"prompt": "\xff"}', b'{"prompt": "a", "x": "\xff"}', b"[" * 100_000,
     b'{"x":' + b"[" * 100_000,
     b'{"prompt": "a", "temperature": NaN}', b'{"prompt": "\\ud800"}'],
)  # fmt: skip
async def test_a_body_that_is_no_json_object_is_a_400(client: Any, data: bytes) -> None:
    response = await client.post(COMPLETIONS, data=data)
    assert response.status == 400
    assert (await response.json())["error"]["type"] == "invalid_request_error"


async def test_a_text_part_without_text_is_refused(client: Any) -> None:
    response = await client.post(CHAT, json={"messages": [{"role": "user", "content": [{"type": "text"}]}]})
    assert (await response.json())["error"]["message"].startswith("messages[0].content[0].text: is missing")


def test_schemas_of_tools_stay_json_text() -> None:
    body = b'{"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type":  "x"}}}]}'
    (tool,) = decode_body(body, ChatBody).tools or ()
    assert isinstance(tool.function.parameters, msgspec.Raw)
    assert bytes(tool.function.parameters) == b'{"type":  "x"}'


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", COMPLETIONS, 405), ("POST", "/health", 405), ("GET", "/nowhere", 404), ("GET", "/v1/models/none", 404)],
)
async def test_routing_errors_are_json_too(client: Any, method: str, path: str, status: int) -> None:
    response = await client.request(method, path)
    assert response.status == status
    assert (await response.json())["error"]["message"]
    assert status != 405 or response.headers["Allow"]


async def test_a_body_that_is_too_large_is_413(connect: Any, engine: FakeEngine) -> None:
    client = await connect(engine, max_body_bytes=100)
    response = await client.post(COMPLETIONS, json={"prompt": "a" * 200})
    assert response.status == 413
    assert "too large" in (await response.json())["error"]["message"]


async def test_an_unknown_model_is_404(client: Any) -> None:
    response = await client.post(COMPLETIONS, json={"prompt": "a", "model": "gpt-x"})
    assert (response.status, (await response.json())["error"]["code"]) == (404, "model_not_found")


async def test_a_full_queue_is_429_with_retry_after(
    client: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(request: object) -> None:
        raise QueueFullError("too many requests wait.", retry_after=7)

    monkeypatch.setattr(engine, "check", full)
    response = await client.post(COMPLETIONS, json={"prompt": "a"})
    assert (response.status, response.headers["Retry-After"]) == (429, "7")


@pytest.mark.direct
async def test_a_stream_that_fails_before_its_first_event_has_the_status_of_the_error(
    client: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(request: object) -> Any:
        raise QueueFullError("another request was faster.", retry_after=7)
        yield

    monkeypatch.setattr(engine, "submit", full)
    for path, body in ((COMPLETIONS, {"prompt": "a", "n": 2}), (CHAT, {"messages": MESSAGES})):
        response = await client.post(path, json={**body, "stream": True})
        assert (response.status, response.headers["Retry-After"]) == (429, "7")
        assert (await response.json())["error"]["type"] == "rate_limit_error"


async def test_a_body_that_is_not_what_its_encoding_says_is_a_400(client: Any) -> None:
    for encoding in ("gzip", "deflate"):
        response = await client.post(COMPLETIONS, data=b'{"prompt": "a"}', headers={"Content-Encoding": encoding})
        assert response.status == 400
        assert "Content-Encoding" in (await response.json())["error"]["message"]


async def test_an_internal_error_is_a_500_without_details(
    client: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine, "check", lambda request: 1 / 0)
    response = await client.post(COMPLETIONS, json={"prompt": "a"})
    assert response.status == 500
    assert "division" not in await response.text()
    assert "division" in caplog.text


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic sécret"}])
async def test_every_route_but_health_needs_the_key(connect: Any, engine: FakeEngine, header: dict[str, str]) -> None:
    client = await connect(engine, api_key="sécret")
    for method, path in [("POST", COMPLETIONS), ("GET", "/metrics"), ("GET", "/v1/models"), ("GET", "/nowhere")]:
        assert (await client.request(method, path, headers=header)).status == 401
    assert (await client.get("/health")).status == 200
    assert (await client.get("/version", headers={"Authorization": "bearer sécret"})).status == 200
