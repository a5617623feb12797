"""One server with lora and ngram: the routes and the metrics of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp.test_utils import TestClient, TestServer

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig
from specserve_workbench.testing.engines import DEFAULTS
from toy_adapters import lora_options, write_adapter

if TYPE_CHECKING:
    from pathlib import Path


async def test_the_routes_and_the_metrics_of_both_are_served(toy_model: Path, tmp_path: Path) -> None:
    write_adapter(tmp_path / "one", toy_model)
    options = lora_options({}, root=str(tmp_path))
    config = EngineConfig(model=str(toy_model), plugins=("lora", "ngram"), plugin_options=options, **DEFAULTS)
    async with TestClient(TestServer(make_app(await AsyncEngine.start(config), ServerConfig()))) as client:
        calls: dict[str, tuple[dict[str, Any], int]] = {
            "/v1/load_lora_adapter": ({"lora_name": "x", "lora_path": "one"}, 200),
            "/v1/ngram/corpora": ({"name": "x", "documents": ["first things first"]}, 202),
            "/v1/completions": ({"model": "x", "prompt": "first", "max_tokens": 9}, 200),
        }
        for path, (body, status) in calls.items():
            answer = await client.post(path, json=body)
            assert answer.status == status, (path, await answer.text())
        metrics = await (await client.get("/metrics")).text()
        assert "specserve_lora_loads_total 1.0" in metrics
        assert "specserve_ngram_" in metrics
