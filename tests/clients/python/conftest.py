"""The server that run.py has started: its address, its key, which routes it has. Needs nothing but pytest."""

from __future__ import annotations

import json
import os
from typing import NamedTuple
from urllib.request import Request, urlopen

import pytest


class Server(NamedTuple):
    url: str
    key: str

    @property
    def v1(self) -> str:
        """What OpenAI's clients call the base URL."""
        return f"{self.url}/v1"


@pytest.fixture(scope="session")
def server() -> Server:
    return Server(os.environ["SPECSERVE_URL"], os.environ["SPECSERVE_API_KEY"])


@pytest.fixture(scope="session")
def routes(server: Server) -> set[str]:
    request = Request(f"{server.url}/openapi.json", headers={"Authorization": f"Bearer {server.key}"})
    with urlopen(request, timeout=10) as answer:
        return set(json.load(answer)["paths"])


@pytest.fixture(autouse=True)
def _skip_without_route(request: pytest.FixtureRequest, routes: set[str]) -> None:
    for mark in request.node.iter_markers("needs_route"):
        if mark.args[0] not in routes:
            pytest.skip(f"this server has no {mark.args[0]}")


@pytest.fixture(scope="session")
def long_text() -> str:
    """More tokens than the demo model's context of 4096 holds."""
    return "one two " * 3000
