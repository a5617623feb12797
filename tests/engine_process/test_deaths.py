"""Either process ends while the other runs: requests get an error at once, and no process stays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from process_table import is_running, wait_until_gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from server_process import ServerProcess

    Start = Callable[..., ServerProcess]

LOADS_SLOWLY = """
import os, pathlib, sys, time

class Slow:
    def find_spec(name, path=None, target=None):
        if name == "specserve.engine.async_engine":
            pathlib.Path(os.environ["BEGAN"]).touch()
            time.sleep(60)

if "-P" in sys.orig_argv:
    sys.meta_path.insert(0, Slow)
"""
"""A module that the engine's process imports to load takes a minute."""
ENDLESS = {"prompt": "one two", "max_tokens": 30_000, "ignore_eos": True}


@pytest.fixture
def temporary() -> Iterator[Path]:
    """For TMPDIR: short enough for sockets, as pytest's own are not everywhere."""
    with tempfile.TemporaryDirectory(prefix="tmp-") as path:
        yield Path(path)


async def until_running(session: aiohttp.ClientSession, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            async with session.get("/load") as response:
                if (await response.json())["server_load"] >= count:
                    return
            await asyncio.sleep(0.01)


async def stream(session: aiohttp.ClientSession, body: dict[str, Any]) -> str:
    async with session.post("/v1/completions", json={**body, "stream": True}) as response:
        return await response.text()


def last_of(text: str) -> dict[str, Any]:
    """The last event of a stream before [DONE], or the answer to one that had not begun."""
    last: dict[str, Any] = json.loads(text.split("\n\n")[-3].removeprefix("data: ") if "\n\n" in text else text)
    return last


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
async def test_an_engine_that_dies_ends_every_request_and_the_server(
    start_server: Start, long_model: Path, how: signal.Signals
) -> None:
    server = start_server(long_model, "--engine-process", "--max-waiting", "64")
    await asyncio.to_thread(server.wait_until_ready)
    engine = server.engine_pid
    async with aiohttp.ClientSession(server.url) as session:
        streams = [asyncio.create_task(stream(session, ENDLESS)) for _ in range(4)]
        whole = asyncio.create_task(session.post("/v1/completions", json=ENDLESS))
        await until_running(session, 5)
        began = time.monotonic()
        os.kill(engine, how)
        for text in await asyncio.gather(*streams):
            assert last_of(text)["error"]["code"] == "engine_dead"
        response = await whole
        assert response.status == 503
        error = (await response.json())["error"]
        assert error["message"].startswith(f"the engine died: its process was ended by {how.name}")
    assert await asyncio.to_thread(server.wait) == 1
    assert time.monotonic() - began < 20
    assert f"the engine died: its process was ended by {how.name}" in server.log.read_text()
    assert not is_running(engine)


async def test_a_server_that_is_killed_leaves_no_engine(start_server: Start, long_model: Path) -> None:
    server = start_server(long_model, "--engine-process")
    await asyncio.to_thread(server.wait_until_ready)
    engine = server.engine_pid
    async with aiohttp.ClientSession(server.url) as session:
        request = asyncio.create_task(stream(session, ENDLESS))
        await until_running(session, 1)
        server.process.kill()
        with pytest.raises(aiohttp.ClientError):
            await request
    await asyncio.to_thread(wait_until_gone, [engine])


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0)])
def test_a_server_that_ends_while_it_loads_leaves_no_engine(
    start_server: Start, long_model: Path, how: signal.Signals, code: int
) -> None:
    server = start_server(long_model, "--engine-process")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            engine = server.engine_pid
            break
        except ValueError:
            time.sleep(0.01)
    server.process.send_signal(how)
    assert server.wait() == code, server.log.read_text()
    wait_until_gone([engine])


def test_an_engine_that_cannot_be_loaded_is_one_line_and_exit_code_2(
    start_server: Start, toy_model: Path, temporary: Path
) -> None:
    server = start_server(toy_model, "--engine-process", "--kv-memory", "1K", variables={"TMPDIR": str(temporary)})
    assert server.wait() == 2
    assert not list(temporary.glob("specserve-*"))
    (line,) = (line for line in server.log.read_text().splitlines() if "error" in line)
    assert "kv_memory" in line or "--kv-memory" in line
    assert "Traceback" not in server.log.read_text()


def test_a_server_that_is_stopped_while_it_loads_leaves_no_directory(
    start_server: Start, toy_model: Path, temporary: Path
) -> None:
    (temporary / "sitecustomize.py").write_text(LOADS_SLOWLY)
    began = temporary / "began"
    variables = {"PYTHONPATH": str(temporary), "TMPDIR": str(temporary), "BEGAN": str(began)}
    server = start_server(toy_model, "--engine-process", variables=variables)
    deadline = time.monotonic() + 60
    while not began.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert began.exists()
    assert server.stop() == 0, server.log.read_text()
    assert not list(temporary.glob("specserve-*"))


def test_an_engine_that_ends_while_it_loads_is_told(start_server: Start, toy_model: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os, sys\nif '-P' in sys.orig_argv: os._exit(7)\n")
    server = start_server(toy_model, "--engine-process", variables={"PYTHONPATH": str(tmp_path)})
    assert server.wait() == 1
    assert "the engine could not be loaded: its process ended with exit code 7" in server.log.read_text()


async def test_the_terminals_signal_drains_and_ends_both(
    start_server: Start, long_model: Path, temporary: Path
) -> None:
    flags = ("--engine-process", "--drain-seconds", "0.2")
    server = start_server(long_model, *flags, variables={"TMPDIR": str(temporary)})
    await asyncio.to_thread(server.wait_until_ready)
    assert list(temporary.glob("specserve-*"))
    engine = server.engine_pid
    async with aiohttp.ClientSession(server.url) as session:
        request = asyncio.create_task(stream(session, ENDLESS))
        await until_running(session, 1)
        os.killpg(server.process.pid, signal.SIGINT)
        assert last_of(await request)["error"]["code"] == "shutting_down"
    assert await asyncio.to_thread(server.wait) == 0, server.log.read_text()
    assert not is_running(engine)
    assert "Traceback" not in server.log.read_text()
    assert not list(temporary.glob("specserve-*"))


async def test_clients_that_leave_are_aborted(start_server: Start, long_model: Path) -> None:
    server = start_server(long_model, "--engine-process")
    await asyncio.to_thread(server.wait_until_ready)
    async with aiohttp.ClientSession(server.url) as session:
        for _ in range(8):
            response = await session.post("/v1/completions", json={**ENDLESS, "stream": True})
            await response.content.readline()
            response.close()
        async with asyncio.timeout(60):
            while True:
                async with session.get("/metrics") as response:
                    text = await response.text()
                gauges = [line for line in text.splitlines() if line.startswith("vllm:num_requests_running{")]
                usage = [line for line in text.splitlines() if line.startswith("vllm:kv_cache_usage_perc{")]
                if gauges[0].endswith(" 0.0") and usage[0].endswith(" 0.0"):
                    return
                await asyncio.sleep(0.01)
