"""Servers for the tests of the engine's process, and a model that they need."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from servers_with_plugins import server_with_plugins

from server_process import ServerProcess, serve_command, stopped_well
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests" / "server"), str(ROOT / "tests" / "lora")]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """`start_server(MODEL, *flags)`: perhaps still loading. `variables`: of its environment."""
    servers: list[ServerProcess] = []

    def start(model: Path, *flags: str, variables: dict[str, str] | None = None) -> ServerProcess:
        log = tmp_path / f"server-{len(servers)}.log"
        command = serve_command(model, "--threads", "1", *flags)
        servers.append(ServerProcess(command, log, cwd=tmp_path, variables=variables))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def server(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One that all tests of a module ask."""
    with stopped_well(server_with_plugins(toy_model, tmp_path_factory.mktemp("two"), "--engine-process")) as started:
        yield started


@pytest.fixture(scope="module")
def one_process(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with stopped_well(server_with_plugins(toy_model, tmp_path_factory.mktemp("one"), "--no-engine-process")) as started:
        yield started


@pytest.fixture(scope="session")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy with a context that no request of a test fills."""
    return write_checkpoint(tmp_path_factory.mktemp("long") / "llama", max_position_embeddings=32768)
