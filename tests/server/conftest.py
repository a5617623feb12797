"""A server over the fake engine. The tokenizer is the tiny one of tests/text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from fake_engine import FakeEngine

from specserve.config import ServerConfig
from specserve.server.app import make_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from specserve.text.tokenizer import HfTokenizer

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests" / "text"), str(ROOT / "tests" / "lora"), str(ROOT / "demo")]


@pytest.fixture
def engine(tokenizer: HfTokenizer) -> FakeEngine:
    return FakeEngine(tokenizer)


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """`client = await connect(engine, **server_options)`."""
    clients: list[Any] = []

    async def connect(engine: Any, **options: Any) -> Any:
        client: Any = TestClient(TestServer(make_app(engine, ServerConfig(**options))))
        await client.start_server()
        clients.append(client)
        return client

    yield connect
    for client in clients:
        await client.close()


@pytest.fixture
async def client(connect: Callable[..., Awaitable[Any]], engine: FakeEngine) -> Any:
    return await connect(engine)
