"""What /metrics has: of a server in two processes with drafters, and of one whose plugins fail."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp.test_utils import TestClient, TestServer
from expressions import Series
from prometheus_client.parser import text_string_to_metric_families

from server_process import ServerProcess, serve_command
from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig
from specserve_workbench.testing.drafters import WrongDrafter
from specserve_workbench.testing.engines import DEFAULTS

sys.path.append(str(Path(__file__).parents[1] / "faults"))
from faulty import Misbehaving, in_process
from parts import Quiet

if TYPE_CHECKING:
    from typing import Never

CUMULATIVE = ("_bucket", "_sum", "_count")
PLUGINS = ("ngram", "eagle", "adaptive", "grammar")
PROMPT = "one two one two one two one"
BODIES = (
    {"prompt": PROMPT, "max_tokens": 40, "temperature": 0},
    {"prompt": PROMPT, "max_tokens": 40, "temperature": 0},
    {"prompt": "x", "max_tokens": 20, "structured_outputs": {"regex": "[ab]{4,8}"}},
)


def kind_of(name: str, type: str) -> str:
    """Of a sample: what a function of PromQL may be given."""
    if type == "histogram":
        return "bucket" if name.endswith("_bucket") else "counter"
    return type if type in ("counter", "gauge") else "unknown"


def series_in(*texts: str) -> dict[str, Series]:
    """By name of the samples, as Prometheus stores them."""
    kinds, values = dict[str, str](), defaultdict[str, defaultdict[str, set[str]]](lambda: defaultdict(set))
    for family in (family for text in texts for family in text_string_to_metric_families(text)):
        for sample in family.samples:
            kinds[sample.name] = kind_of(sample.name, family.type)
            for label, value in sample.labels.items():
                values[sample.name][label].add(value)
    return {
        name: Series(kind, {label: frozenset(found) for label, found in values[name].items()})
        for name, kind in kinds.items()
    }


def metrics_of_a_process(model: Path, log: Path) -> str:
    """Of a server whose engine runs in a process of its own, with drafters and requests that they drafted for."""
    options = ("--kv-memory=64M", "--threads=1", "--set", f"eagle.model={model}", "--set", "adaptive.cost_cache=none")
    plugins = (f"--plugin={name}" for name in PLUGINS)
    with ServerProcess(serve_command(model, "--engine-process", *plugins, *options), log) as server:
        for body in BODIES:
            sent = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode())
            sent.add_header("Content-Type", "application/json")
            with urllib.request.urlopen(sent, timeout=60) as answer:
                assert answer.status == 200
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
            return str(answer.read().decode())


def fail(*_: object) -> Never:
    raise ValueError("no")


def failing_plugin() -> dict[str, object]:
    return in_process(
        "faulty",
        make_observer=lambda: Misbehaving(Quiet(), "observe", fail),
        make_draft_planner=lambda: FixedWidthPlanner(8),
        make_drafter=lambda: Misbehaving(WrongDrafter({}, 2, 320), "propose", fail),
    )


async def metrics_with_faults(model: Path) -> str:
    """Of a server that has switched parts of a plugin off, and refused a request."""
    config = EngineConfig(model=str(model), **DEFAULTS, allow_undeclared=True)
    engine = await AsyncEngine.start(config, extra=failing_plugin())
    server = TestServer(make_app(engine, ServerConfig(max_requests_per_minute=1)))
    async with TestClient(server) as client:
        statuses = [(await client.post("/v1/completions", json=BODIES[0])).status for _ in range(2)]
        assert statuses == [200, 429]
        text = await (await client.get("/metrics")).text()
    await engine.stop()
    return text


def exposed_series(model: Path, log: Path) -> dict[str, Series]:
    return series_in(metrics_of_a_process(model, log), asyncio.run(metrics_with_faults(model)))
