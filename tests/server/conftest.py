"""A server over the fake engine. The tokenizer is the tiny one of tests/text."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from fake_engine import FakeEngine

from both_forms import in_form
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
OVER_BOTH = {
    *("test_completions", "test_chat_completions", "test_streaming", "test_messages", "test_responses"),
    *("test_info", "test_operations", "test_metrics", "test_time_limit", "test_error_codes", "test_proxy_and_cors"),
    *("test_request_log", "test_response_counts", "test_rate_limits", "test_reasoning", "test_common_fields"),
    "test_return_speculation",
}
"""Modules whose tests see what is sent over a socket, and what comes back."""
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """How the server has its engine: in its process, or over a socket; with `make test-all` both everywhere."""
    if "engine_form" in metafunc.fixturenames:
        marks = [] if metafunc.module.__name__ in OVER_BOTH else [pytest.mark.sweep]
        is_direct = metafunc.definition.get_closest_marker("direct") is not None
        metafunc.parametrize("engine_form", ["direct", *([] if is_direct else [pytest.param("socket", marks=marks)])])


@pytest.fixture
async def connect(engine_form: str) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """`client = await connect(engine, **server_options)`."""
    async with AsyncExitStack() as stack:

        async def connect(engine: Any, **options: Any) -> Any:
            config = ServerConfig(**options)
            if not callable(engine):
                engine = await stack.enter_async_context(in_form(engine_form, engine, config))
            client: Any = TestClient(TestServer(make_app(engine, config)))
            await client.start_server()
            stack.push_async_callback(client.close)
            return client

        yield connect


@pytest.fixture
async def client(connect: Callable[..., Awaitable[Any]], engine: FakeEngine) -> Any:
    return await connect(engine)
