"""A server over the fake engine. The tokenizer is the tiny one of tests/text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from fake_engine import FakeEngine

from specserve.text.tokenizer import HfTokenizer
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

ROOT = Path(__file__).parents[2]
TOOL_TEMPLATE = """\
{% for t in tools or [] %}tool: {{ t.function | tojson }}
{% endfor %}
{% for m in messages %}
{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>
{%- endfor %}{{ "\\n" }}
{%- endfor %}
"""
sys.path += [str(ROOT / "tests" / "text"), str(ROOT / "tests" / "lora"), str(ROOT / "demo"), str(ROOT / "tools")]


@pytest.fixture
def engine(tokenizer: HfTokenizer) -> FakeEngine:
    return FakeEngine(tokenizer)


@pytest.fixture(scope="session")
def tool_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    """Of a model that was trained to call tools, in Hermes' form."""
    from tiny_tokenizer import write_model_dir

    path = tmp_path_factory.mktemp("tool_model")
    write_model_dir(path, TOOL_TEMPLATE)
    return HfTokenizer.from_dir(path)


@pytest.fixture
async def tool_engine(tool_tokenizer: HfTokenizer) -> FakeEngine:
    return FakeEngine(tool_tokenizer, reason="stop", max_model_len=1024)


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
