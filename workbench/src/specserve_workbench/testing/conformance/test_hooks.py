"""Every hook of an installed plugin is called: at start-up, by a server, and while requests are served."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING

import pytest

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.errors import ConfigError
from specserve.plugins.hook_checks import HOOK_ARGUMENTS
from specserve_workbench.testing.conformance.cases import COMMON, Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from specserve_workbench.testing.conformance.cases import Options

TRACE = "specserve.trace.hooks"
PROMPT = "one two three four, one two three four, one two"
ONLY_IN_SOME_STEPS = {"decline_graph"}
"""Called where steps may be recorded, which the attention backend decides."""


def test_every_hook_is_called(
    plugin: str,
    toy_model: Path,
    plugin_options: Options,
    caplog: pytest.LogCaptureFixture,
    note: Callable[[str], None],
) -> None:
    pytest.importorskip("specserve_server", reason="a server calls the hooks: pip install specserve")
    settings: Settings = {**COMMON, "graphs": "piecewise"}
    given = {name: dict(table) for name, table in plugin_options.items() if name == plugin}
    config = EngineConfig(model=str(toy_model), plugins=(plugin,), plugin_options=given, **settings)
    with caplog.at_level(logging.DEBUG, TRACE):
        try:
            implemented = asyncio.run(serve(config, plugin))
        except ConfigError as error:
            pytest.skip(str(error))
    called = set(re.findall(rf"plugin={plugin} hook=(\w+)", caplog.text))
    assert implemented - called <= ONLY_IN_SOME_STEPS
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert not warnings
    note(f"{len(called)} hooks: {', '.join(hook for hook in HOOK_ARGUMENTS if hook in called)}")


async def serve(config: EngineConfig, plugin: str) -> set[str]:
    """Ask everything that a client may ask; the hooks that the plugin implements."""
    from aiohttp.test_utils import TestClient, TestServer

    from specserve_server.app.application import make_app
    from specserve_server.config import ServerConfig

    engine = await AsyncEngine.start(config)
    by_hook = engine.plugins.implementers
    async with TestClient(TestServer(make_app(engine, ServerConfig()))) as client:
        for path in ("/v1/models", "/metrics", "/v1/plugins", "/health"):
            assert (await client.get(path)).status == 200, path
        for model, status in ((engine.model_name, 200), ("no such model", 404)):
            body = {"model": model, "prompt": PROMPT, "max_tokens": 16, "temperature": 0}
            assert (await client.post("/v1/completions", json=body)).status == status, model
        if "json_object" in engine.output_kinds:
            body = {"prompt": PROMPT, "max_tokens": 16, "response_format": {"type": "json_object"}}
            assert (await client.post("/v1/completions", json=body)).status == 200
        assert (await client.get("/metrics")).status == 200
    return {hook for hook, plugins in by_hook.items() if plugin in [one.name for one in plugins]}
