"""`return_speculation` where the engine has a process of its own and two processes answer on one port.

Each of them tells the steps of its requests, and together they are what /metrics counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from response_checks import as_completion, check_steps, join_chunks
from servers_with_plugins import server_with_plugins
from shared_port import one_connection_each
from test_http_processes import ask, counts

from server_process import stopped_well

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPConnection
    from pathlib import Path

NUM_PROCESSES = 2
PROMPT = "one two three four, one two three four, one two"
ASKED = {"max_tokens": 30, "ignore_eos": True, "return_token_ids": True, "return_speculation": True, "seed": 3}
PATHS = {
    "/v1/completions": {"prompt": PROMPT},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": PROMPT}]},
}


@pytest.fixture(scope="module")
def connections(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[HTTPConnection]]:
    """One to each process."""
    flags = ("--http-processes", str(NUM_PROCESSES), "--draft-tokens", "4")
    server = server_with_plugins(toy_model, tmp_path_factory.mktemp("told"), *flags)
    with stopped_well(server) as started, one_connection_each(started) as found:
        yield list(found.values())


def choices_of(connection: HTTPConnection, path: str, **more: Any) -> list[dict[str, Any]]:
    status, text, kind = ask(connection, "POST", path, {**PATHS[path], **ASKED, **more})
    assert status == 200, text
    if kind is not None and "json" in kind:
        return [as_completion(choice) for choice in json.loads(text)["choices"]]
    *events, _, _ = text.split("\n\n")
    return join_chunks([json.loads(event.removeprefix("data: ")) for event in events])


def test_every_process_tells_the_steps_whole_and_streamed(connections: list[HTTPConnection]) -> None:
    assert len(connections) == NUM_PROCESSES
    before, told = counts(connections[0]), {"draft": 0, "accepted_draft": 0}
    for path in PATHS:
        for stream in (False, True):
            answers = [choices_of(connection, path, stream=stream, n=2) for connection in connections]
            for choice in (choice for answer in answers for choice in answer):
                check_steps(choice)
                nodes = [node for step in choice["speculation"]["steps"] for node in step["draft"]]
                told["draft"] += len(nodes)
                told["accepted_draft"] += sum(node["accepted"] for node in nodes)
            ids = [[choice["token_ids"] for choice in answer] for answer in answers]
            assert ids[0] == ids[1]
            assert len(ids[0][0]) == 30
    after = counts(connections[1])
    for kind, count in told.items():
        assert total(after, kind) - total(before, kind) == count > 0


def total(found: dict[str, float], kind: str) -> float:
    """Of all drafters."""
    return sum(value for name, value in found.items() if name.startswith(f"specserve_{kind}_tokens_total{{"))


def test_every_process_says_that_speculation_is_off(connections: list[HTTPConnection]) -> None:
    for connection in connections:
        (choice,) = choices_of(connection, "/v1/completions", speculation={"enabled": False})
        check_steps(choice)
        _, *others = choice["speculation"]["steps"]
        assert {(step["stopped"], step["reason"]) for step in others} == {
            ("no_draft", "the request switches speculation off")
        }
