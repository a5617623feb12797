"""The ingress as an ASGI application: what it makes of a scope and of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from specserve_ray.asgi import ClientLeftError, add_slash, lacks_slash, read_request, run_lifespan, send_answer
from specserve_ray.wire import Head

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SCOPE = {
    "method": "POST",
    "path": "/llm/v1/ngram/corpora/a b",
    "raw_path": b"/llm/v1/ngram/corpora/a%20b",
    "query_string": b"x=1&y",
    "headers": [(b"content-length", b"5"), (b"authorization", b"Bearer \xe9"), (b"connection", b"close")],
}


class Messages:
    """Received one after the other; counts how many were taken."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages, self.num_taken = messages, 0

    async def __call__(self) -> dict[str, Any]:
        self.num_taken += 1
        return self.messages[self.num_taken - 1]


def part(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_request_is_what_was_sent_without_the_prefix_of_a_proxy() -> None:
    request = await read_request(SCOPE, Messages(part(b"ab", more=True), part(b"cde", more=False)), "/llm", 100)
    assert (request.method, request.path, request.body) == ("POST", "/v1/ngram/corpora/a%20b?x=1&y", b"abcde")
    assert request.headers == (("authorization", "Bearer é"),)


@pytest.mark.parametrize(("route_prefix", "root_path"), [("/llm", ""), ("", "/llm"), ("/llm", "/llm"), ("/llm", "/v2")])
async def test_rays_route_prefix_and_that_of_a_proxy_are_removed(route_prefix: str, root_path: str) -> None:
    scope = SCOPE | {"root_path": route_prefix}
    request = await read_request(scope, Messages(part(b"", more=False)), root_path, 100)
    assert request.path.startswith("/v1/ngram/")
    other = scope | {"raw_path": b"/llmx/v1"}
    assert (await read_request(other, Messages(part(b"", more=False)), root_path, 100)).path == "/llmx/v1?x=1&y"


@pytest.mark.parametrize(("route_prefix", "root_path"), [("/llm", ""), ("", "/llm")])
async def test_a_prefix_without_a_slash_leads_to_the_page(route_prefix: str, root_path: str) -> None:
    alone = SCOPE | {"root_path": route_prefix, "raw_path": b"/llm", "method": "GET"}
    assert lacks_slash(alone, root_path)
    assert not lacks_slash(alone | {"raw_path": b"/llm/"}, root_path)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await add_slash(alone, send)
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"location"]) == (308, b"/llm/")
    assert not lacks_slash(SCOPE | {"root_path": "", "raw_path": b""}, "")


async def test_of_a_body_that_is_too_long_one_byte_more_than_allowed_is_read() -> None:
    receive = Messages(part(b"abcd", more=True), part(b"efgh", more=True), part(b"ijkl", more=True))
    request = await read_request(SCOPE, receive, "", 5)
    assert (request.body, receive.num_taken) == (b"abcdef", 2)


async def test_a_client_that_leaves_early_is_noticed() -> None:
    receive = Messages(part(b"ab", more=True), {"type": "http.disconnect"})
    with pytest.raises(ClientLeftError):
        await read_request(SCOPE, receive, "", 100)


async def test_an_answer_is_passed_on_part_by_part_and_says_who_gave_it() -> None:
    async def parts() -> AsyncIterator[Head | bytes]:
        yield Head(201, (("Date", "now"), ("Content-Type", "a/b"), ("Transfer-Encoding", "chunked")), "r1")
        yield b"x"
        yield b"y"

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await send_answer(send, parts())
    headers = [(b"content-type", b"a/b"), (b"x-specserve-replica", b"r1")]
    assert sent[0] == {"type": "http.response.start", "status": 201, "headers": headers}
    assert [(message["body"], message["more_body"]) for message in sent[1:]] == [
        (b"x", True),
        (b"y", True),
        (b"", False),
    ]


async def test_the_lifespan_is_answered() -> None:
    sent: list[str] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await run_lifespan(Messages({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}), send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
