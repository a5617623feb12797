"""A collector, and servers that send their traces to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from collector import Collector
from traced_forms import FORMS, SOON

from server_process import ServerProcess, serve_command, stopped_well

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests" / folder) for folder in ("text", "server", "engine", "faults", "engine_process")]


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    with Collector() as started:
        yield started


@pytest.fixture(scope="module", params=["direct", "three processes"])
def server(
    request: pytest.FixtureRequest, toy_model: Path, collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """With drafts, and with its engine here or in a process of its own, which several processes ask."""
    folder = tmp_path_factory.mktemp("traced")
    flags = ("--threads", "1", "--plugin", "ngram", "--max-num-batched-tokens", "64", *FORMS[request.param])
    command = serve_command(toy_model, *flags, "--otlp-traces-endpoint", collector.url)
    with stopped_well(ServerProcess(command, folder / "log", variables=SOON)) as started:
        yield started
