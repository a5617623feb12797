"""Servers for the tests of the engine's process, and a model that they need."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from server_processes import Server, running

from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests" / "server"), str(ROOT / "tests" / "lora")]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """`start_server(MODEL, *flags)`: listening on a free port, and perhaps still loading."""
    servers: list[Server] = []

    def start(model: Path, *flags: str) -> Server:
        log = tmp_path / f"server-{len(servers)}.log"
        command = [sys.executable, "-m", "specserve", "serve", str(model), "--port", "0", "--threads", "1", *flags]
        with log.open("w") as file:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=file, text=True, start_new_session=True, cwd=tmp_path
            )
        servers.append(Server(process, log))
        return servers[-1]

    yield start
    for server in servers:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait()
        assert server.process.stdout is not None
        server.process.stdout.close()


@pytest.fixture(scope="module")
def server(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that all tests of a module ask, with n-gram drafts, adapters and structured output."""
    with running(toy_model, tmp_path_factory.mktemp("server"), "--engine-process") as started:
        yield started


@pytest.fixture(scope="session")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy with a context that no request of a test fills."""
    return write_checkpoint(tmp_path_factory.mktemp("long") / "llama", max_position_embeddings=32768)
