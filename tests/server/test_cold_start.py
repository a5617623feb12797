"""The first seconds of a process: types that no thread has decoded yet, and what a crash leaves in the log."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FIRST_CONVERSIONS = """
import sys, threading
import msgspec
from specserve_checks.struct_tables import build_struct_tables

def convert(struct):
    ready.wait()
    msgspec.convert({"last": 1}, struct)

structs = []
for n in range(60):
    inner = msgspec.defstruct(f"Inner{n}", [(f"f{i}", "int | None", None) for i in range(30)])
    structs.append(msgspec.defstruct(f"Outer{n}", [("inner", inner | None, None), ("last", int, 0)]))
build_struct_tables()
sys.setswitchinterval(1e-6)
for struct in structs:
    ready = threading.Barrier(8)
    threads = [threading.Thread(target=convert, args=(struct,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""

START_SERVER = """
import asyncio, importlib, pkgutil, sys
from aiohttp import web
from specserve.config import EngineConfig
from specserve_server.config import ServerConfig
from specserve.engine.async_engine import AsyncEngine
from specserve_server.app.application import make_app
from specserve_checks.struct_tables import build_struct_tables

plugins = ("adaptive", "cpu", "eagle", "grammar", "hybrid_attn", "kv_events", "lora", "ngram")

async def start_and_stop():
    options = {"eagle": {"model": sys.argv[1]}, "kv_events": {"endpoint": "tcp://127.0.0.1:*"}}
    engine = await AsyncEngine.start(
        EngineConfig(model=sys.argv[1], plugins=plugins, plugin_options=options, kv_memory="16M", max_model_len=256)
    )
    runner = web.AppRunner(make_app(engine, ServerConfig()))
    await runner.setup()
    await runner.cleanup()

asyncio.run(start_and_stop())
for root in ("specserve", *(f"specserve_{name}" for name in plugins)):
    for module in pkgutil.walk_packages(importlib.import_module(root).__path__, f"{root}."):
        if not module.name.startswith(NEVER_SERVING):
            importlib.import_module(module.name)
late = {f"{struct.__module__}.{struct.__qualname__}" for struct in build_struct_tables()}
print(*sorted(name for name in late if not name.startswith(NEVER_SERVING)))
"""
NEVER_SERVING = (
    "specserve.__main__",
    "specserve.batch.transport",
    "specserve_workbench.doctor",
    "specserve_workbench.scaffold",
    "specserve_workbench.testing",
    "specserve.kernels.triton",
    "specserve_eagle.cli",
    "specserve_eagle.training",
    "specserve_cuda.attention",
    "specserve_lora.uno",
)
"""Modules of other commands and of a plugin that is not enabled here, what sends batches to other processes, and those
that need a CUDA device."""

CONVERTED_FIRST = """
import asyncio, sys
import msgspec
from specserve_checks import struct_tables
from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine

plugins = ("adaptive", "cpu", "eagle", "grammar", "hybrid_attn", "kv_events", "lora", "ngram")
unbuilt, met = set(), set()

def watched(function, position):
    def convert(*args, **kwargs):
        kind = kwargs.get("type", args[position] if len(args) > position else None)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            (met if kind in struct_tables._BUILT else unbuilt).add(kind.__qualname__)
        return function(*args, **kwargs)
    return convert

msgspec.convert = watched(msgspec.convert, 1)
msgspec.json.decode = watched(msgspec.json.decode, 1)

async def start_and_stop():
    options = {"eagle": {"model": "demo-eagle3"}, "kv_events": {"endpoint": "tcp://127.0.0.1:*"}}
    config = EngineConfig(
        model="demo", plugins=plugins, plugin_options=options, kv_memory="16M", max_model_len=256
    )
    await (await AsyncEngine.start(config)).stop()

asyncio.run(start_and_stop())
assert {"ModelConfig", "HeadConfig", "EagleOptions"} <= met | unbuilt, met
print(*sorted(unbuilt))
"""

CRASH = """
import os, signal
from specserve_server.cli import main
from specserve_server.app import run

async def crash(*arguments):
    os.kill(os.getpid(), signal.SIGSEGV)

run.serve = crash
main(["serve", "demo"])
"""


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300)


def test_eight_threads_that_convert_structs_first_do_not_end_the_process() -> None:
    done = run_python(FIRST_CONVERSIONS)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_started_server_has_the_tables_of_all_structs_that_serving_may_decode(toy_model: Path) -> None:
    done = run_python(START_SERVER.replace("NEVER_SERVING", repr(NEVER_SERVING)), str(toy_model))
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr[-2000:]


def test_an_engine_that_loads_converts_only_structs_whose_tables_are_built() -> None:
    """Another engine of the process may load at the same time."""
    done = run_python(CONVERTED_FIRST)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr[-2000:]


def test_a_crash_leaves_the_stack_in_the_log_and_a_signal_as_exit_code() -> None:
    done = run_python(CRASH)
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert "in crash" in done.stderr
