"""Graphs as an operator sees them: counters that add up, and the description of what was recorded."""

from __future__ import annotations

import re

from aiohttp.test_utils import TestClient, TestServer

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig
from specserve_workbench.testing.engines import DEFAULTS


async def test_counters_add_up_and_the_description_is_live(toy_model):
    options = DEFAULTS | {"plugins": ("cpu", "graphs"), "graphs": "full"}
    config = EngineConfig(model=str(toy_model), **options)
    async with TestClient(TestServer(make_app(await AsyncEngine.start(config), ServerConfig()))) as client:

        async def graphs():
            return (await (await client.get("/v1/plugins")).json())["engine"]["graphs"]

        before = await graphs()
        assert (before["mode"], before["recorder"], before["steps"]) == ("full", "reference", [])
        body = {"model": str(toy_model), "prompt": "hello there", "max_tokens": 9, "ignore_eos": True}
        assert (await client.post("/v1/completions", json=body)).status == 200
        text = await (await client.get("/metrics")).text()
        steps = float(re.search(r"^specserve_steps_total\S* (\S+)$", text, re.M)[1])
        parts = re.findall(r'^specserve_graph_steps_total\{.*mode="(\w+)",.*reason="(.*)".*\} (\S+)$', text, re.M)
        assert sum(float(count) for *_, count in parts) == steps == 9
        assert {(mode, reason) for mode, reason, _ in parts} == {("full", ""), ("piecewise", "")}
        after = await graphs()
        assert sorted((step["mode"], step["steps"]) for step in after["steps"]) == [("full", 8), ("piecewise", 1)]
        assert after["recorded"] == {"full": 1, "piecewise": 1}
        assert 0 < after["bytes"] <= after["max_bytes"]
        assert (after["not_recorded"], after["without"]) == ([], "")


async def test_without_graphs_steps_are_counted_too(toy_model):
    config = EngineConfig(model=str(toy_model), **DEFAULTS)
    async with TestClient(TestServer(make_app(await AsyncEngine.start(config), ServerConfig()))) as client:
        body = {"model": str(toy_model), "prompt": "hello there", "max_tokens": 3, "ignore_eos": True}
        assert (await client.post("/v1/completions", json=body)).status == 200
        text = await (await client.get("/metrics")).text()
        assert re.search(r'^specserve_graph_steps_total\{.*mode="none",.*reason="graphs are off".*\} 3.0$', text, re.M)
        described = (await (await client.get("/v1/plugins")).json())["engine"]["graphs"]
        assert described == {"mode": "none", "steps": [{"mode": "none", "reason": "graphs are off", "steps": 3}]}
