"""While an engine loads: what the server answers and tells, and what is found before anything heavy begins."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from serve_task import interrupt

from specserve.config import EngineConfig
from specserve.engine.async_engine import load
from specserve.errors import ConfigError, ModelError
from specserve.load_progress import IMPORTING, READING
from specserve.loading_thread import is_loading, run_in_loading_thread
from specserve.plugins.settings import parse_settings
from specserve_server.app.application import ROUTES
from specserve_server.app.run import serve
from specserve_server.cli.progress import ProgressLines
from specserve_server.config import ServerConfig
from specserve_server.load_progress import LoadProgress, Stage
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fake_engine import FakeEngine

GIB = 2**30
COMMAND = """
import sys
from specserve_server.cli import main

print("code", main(sys.argv[1:]), "torch" in sys.modules, "aiohttp" in sys.modules)
"""
LOADS_FOR_EVER = """
import sys, time
from specserve.__main__ import main
from specserve.engine import async_engine

def load(config, extra, progress):
    progress("reading weights", 1, 2)
    time.sleep(600)

async_engine.load = load
sys.exit(main())
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


WRONG_PATHS = (
    "eagle.model=/no/such/head",
    "lora.root=/no/such/folder",
    "lora.adapters.sql=/no/such/adapter",
    "ngram.corpus_root=/no/such/folder",
    "ngram.corpora.code=/no/such/file",
)


@pytest.mark.parametrize("setting", WRONG_PATHS)
def test_a_wrong_path_of_a_plugin_is_found_before_the_model_is_read(setting: str) -> None:
    plugin, path, stages = setting.partition(".")[0], setting.partition("=")[2], set[str]()
    config = EngineConfig(model="demo", plugins=(plugin,), plugin_options=parse_settings([setting]))
    with pytest.raises(ConfigError, match=path):
        load(config, {}, lambda stage, done, total: stages.add(stage))
    assert stages <= {IMPORTING}


@pytest.mark.parametrize(
    "setting",
    [WRONG_PATHS[0], *(pytest.param(each, marks=pytest.mark.sweep) for each in WRONG_PATHS[1:])],
)
def test_a_wrong_path_of_a_plugin_ends_the_command_before_the_model_is_read(setting: str) -> None:
    plugin = setting.partition(".")[0]
    command = [sys.executable, "-m", "specserve", "serve", "demo", "--plugin", plugin, "--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert setting.partition("=")[2] in done.stderr.splitlines()[-1]
    assert "reading weights" not in done.stderr


def test_a_backend_that_nobody_brings_is_told_before_the_model_is_read() -> None:
    command = [sys.executable, "-m", "specserve", "serve", "demo", "--attention", "flash"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "reading weights" in done.stderr) == (2, False)
    assert "--attention: no backend is named 'flash'" in done.stderr


async def test_a_server_that_loads_listens_and_says_how_far_it_is(engine: FakeEngine) -> None:
    go, progress, port = threading.Event(), LoadProgress(), free_port()

    def load() -> FakeEngine:
        progress(READING, 3, 7)
        go.wait(30)
        return engine

    task = asyncio.create_task(serve(partial(run_in_loading_thread, load), ServerConfig(port=port), progress))
    while progress.stage.name != READING:
        await asyncio.sleep(0.005)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.get("/health") as response:
            body = await response.json()
        assert (response.status, body["status"]) == (503, "loading")
        seconds = body["progress"].pop("seconds")
        assert body["progress"] == {"stage": READING, "done": 3, "total": 7, "unit": "bytes"}
        assert 0 <= seconds < 30
        go.set()
        while (response := await session.get("/health")).status != 200:
            await asyncio.sleep(0.005)
        assert await response.json() == {"status": "ready"}
    interrupt()
    assert await task == 0


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_only_health_is_served_while_the_engine_loads(connect: Any, route: Any) -> None:
    client = await connect(asyncio.Event().wait)
    path = route.path.replace("{name:.+}", "demo").replace("{id}", "resp_1")
    response = await client.request(route.method, path, json={} if route.method == "POST" else None)
    assert response.status == 503
    if path not in ("/health", "/ping"):
        assert response.headers["Retry-After"] == "1"
        assert "the server is loading" in (await response.json())["error"]["message"]


async def test_an_unknown_path_is_no_404_while_plugins_may_still_serve_it(connect: Any) -> None:
    client = await connect(asyncio.Event().wait)
    assert (await client.get("/v1/nowhere")).status == 503


async def test_a_key_is_needed_while_the_engine_loads(connect: Any) -> None:
    client = await connect(asyncio.Event().wait, api_key="k")
    assert (await client.get("/v1/models")).status == 401
    assert (await client.get("/health")).status == 503


async def test_nothing_is_loaded_where_the_port_is_taken(engine: FakeEngine) -> None:
    started = []

    async def start() -> FakeEngine:
        started.append(1)
        return engine

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="cannot listen"):
        await serve(start, ServerConfig(port=taken.getsockname()[1]))
    assert started == []


@pytest.mark.parametrize("load", [lambda: 1, lambda: 1 // 0])
async def test_nothing_is_loading_when_the_result_is_there(load: Callable[[], int]) -> None:
    """The command ends its process at once where something is: with the interpreter it may end otherwise."""
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(200):
            with suppress(ZeroDivisionError):
                await run_in_loading_thread(load)
            assert not is_loading()
    finally:
        sys.setswitchinterval(0.005)


async def test_what_the_loading_thread_raises_ends_the_server() -> None:
    def load() -> FakeEngine:
        raise ModelError("shard 3 is truncated.")

    with pytest.raises(ModelError, match="shard 3"):
        await serve(partial(run_in_loading_thread, load), ServerConfig(port=0))


def broken_template(path: Path) -> list[str]:
    write_checkpoint(path)
    (path / "chat_template.jinja").write_text("{% for")
    return ["serve", str(path)]


def broken_weights(path: Path) -> list[str]:
    write_checkpoint(path)
    (path / "model.safetensors").unlink()
    return ["serve", str(path)]


WRONG: dict[str, Callable[[Path], list[str]]] = {
    "no model": lambda path: ["serve", "nosuchmodel"],
    "a directory without a model": lambda path: ["serve", str(path)],
    "a model without weights": broken_weights,
    "no such plugin": lambda path: ["serve", "demo", "--plugin", "nosuch"],
    "a plugin's options without the plugin": lambda path: ["serve", "demo", "--set", "nosuch.key=1"],
    "no such tokenizer": lambda path: ["serve", "demo", "--tokenizer", str(path / "none")],
    "no such chat template": lambda path: ["serve", "demo", "--chat-template", str(path / "none")],
    "a model with a wrong chat template": broken_template,
    "a default out of range": lambda path: ["serve", "demo", "--generation-config", '{"top_p": 7}'],
    "no model for generate": lambda path: ["generate", "nosuchmodel", "a"],
    "a wrong file": lambda path: ["serve", "--config", str(path)],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_told_before_torch_is_imported(wrong: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMMAND, *WRONG[wrong](tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["code", "2", "False", "False"], done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("specserve: error: ")


@pytest.mark.parametrize("wrong", ["port", "certificate", "key file"])
def test_what_is_wrong_with_the_address_is_told_before_torch_is_imported(wrong: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = {
            "port": ["--port", str(taken.getsockname()[1])],
            "certificate": ["--port", "0", "--tls-cert", str(tmp_path / "none")],
            "key file": ["--port", "0", "--api-key-file", str(tmp_path / "none")],
        }
        command = [sys.executable, "-c", COMMAND, "serve", "demo", *flags[wrong]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["code", "2", "False", "True"], done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "number", "code"),
    [
        (["serve", "demo", "--port", "0", "--no-engine-process"], signal.SIGTERM, 0),
        (["serve", "demo", "--port", "0", "--no-engine-process"], signal.SIGINT, 0),
        (["generate", "demo", "a"], signal.SIGINT, 130),
    ],
)
def test_a_signal_while_loading_ends_the_process_though_a_thread_loads_on(
    command: list[str], number: int, code: int
) -> None:
    program = [sys.executable, "-c", LOADS_FOR_EVER, *command]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "specserve: reading weights, 1 B of 2 B\n"
        process.send_signal(number)
        assert process.wait(300) == code  # and not after the 600 seconds of the thread


def test_progress_is_a_line_when_a_stage_begins_and_ends_and_every_few_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0
    progress = LoadProgress(ProgressLines(lambda: now), lambda: now)
    for second in range(12):
        now = float(second)
        progress(READING, second * GIB, 12 * GIB)
    progress(READING, 12 * GIB, 12 * GIB)
    progress("measuring", 0, 0)
    assert capsys.readouterr().err.splitlines() == [
        "specserve: reading weights, 0 B of 12.0 GiB",
        "specserve: reading weights, 5.0 GiB of 12.0 GiB, 5.0 s",
        "specserve: reading weights, 10.0 GiB of 12.0 GiB, 10.0 s",
        "specserve: reading weights, 12.0 GiB of 12.0 GiB, 11.0 s",
        "specserve: measuring",
    ]


def test_a_stage_in_which_nothing_is_counted_is_told_again(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    progress = LoadProgress(ProgressLines(lambda: now), lambda: now)
    progress("measuring", 0, 0)
    now = 5.0
    progress.repeat()
    assert capsys.readouterr().err.splitlines() == ["specserve: measuring", "specserve: measuring, 5.0 s"]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 2**40, "3.0 TiB"), (2**62, "4194304.0 TiB")],
)
def test_bytes_have_units(count: int, text: str) -> None:
    assert Stage(READING, count, 1, 0.0).quantity(count) == text
