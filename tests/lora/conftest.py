"""Adapters of mixed ranks and targets for the toy model, servers with lora, and the helpers of tests/server."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from lora_client import Client

from both_forms import FORMS, in_form
from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig
from specserve_workbench.testing.engines import DEFAULTS
from toy_adapters import lora_of, lora_options, write_adapter, write_adapters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

sys.path += [str(Path(__file__).parent.parent / name) for name in ("text", "server", "engine")]


@pytest.fixture(scope="session")
def adapters(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """a0 to a7."""
    return write_adapters(tmp_path_factory.mktemp("adapters"), toy_model, 8)


@pytest.fixture
def root(toy_model: Path, tmp_path: Path) -> Path:
    for i, name in enumerate(("one", "two", "three")):
        write_adapter(tmp_path / "root" / name, toy_model, seed=50 + i, size=0.6)
    write_adapter(tmp_path / "outside", toy_model)
    return tmp_path / "root"


@pytest.fixture(params=FORMS)
def engine_form(request: pytest.FixtureRequest) -> str:
    """How the server has its engine."""
    form: str = request.param
    return form


@pytest.fixture
async def connect(
    toy_model: Path, adapters: dict[str, Path], engine_form: str
) -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    """`client = await connect(root=..., max_loaded=...)`: a server with adapter a1."""
    async with AsyncExitStack() as stack:

        async def connect(**settings: Any) -> Client:
            tables = lora_options({"a1": adapters["a1"]}, **settings)
            config = EngineConfig(model=str(toy_model), plugins=("lora",), plugin_options=tables, **DEFAULTS)
            server = ServerConfig(served_model_name="toy")
            engine = await AsyncEngine.start(config)
            attached = await stack.enter_async_context(in_form(engine_form, engine, server))
            http: Any = await stack.enter_async_context(TestClient(TestServer(make_app(attached, server))))
            return Client(http, lora_of(engine.engine))

        yield connect


@pytest.fixture
async def client(connect: Callable[..., Awaitable[Client]], root: Path) -> Client:
    return await connect(root=str(root))
