"""The demo model, a tiny tokenizer, both kernel sets, and one thread again after every test."""

from __future__ import annotations

import gc
import os
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

# Read when torch is loaded. Threads that spin at a barrier stall those of whatever else runs: with two threads on two
# cores and one of them busy, tests take ten times as long.
os.environ["GOMP_SPINCOUNT"] = "100"

import torch
from hypothesis import settings

from specserve.engine import measure_costs
from specserve.models.locate import locate_model
from specserve.plugins import discovery
from specserve.text.tokenizer import HfTokenizer
from specserve_workbench.testing import engines

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

    from specserve.declare import PluginDeclaration


settings.register_profile("suite", deadline=None)
settings.load_profile("suite")
"""How long an example takes is the machine's."""

collect_ignore = ["arm", "clients", "cluster", "routers"]
"""They need what `make test-arm`, `-clients`, `-cluster` and `-routers` install elsewhere."""

LONG_FILES = ("test_conformance.py", "test_soak_short.py", "test_dry_run.py", "test_cpu_sanitizers.py")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What is collected stays to the end: a million objects that the garbage collector need not visit again and again.
    It would take a third of the collection, and then 0.5 s each time that a test calls it.

    The bytecode of all that is imported meanwhile is kept for the next run, also where PYTHONDONTWRITEBYTECODE is set:
    of the tests, in which pytest rewrites assertions, and of the modules that they import."""
    gc.disable()
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = kept
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file is one worker's: with the longest ones at the end, the other workers would wait for it."""
    items.sort(key=lambda item: item.path.name not in LONG_FILES)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What plugins keep across starts is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def installed_plugins_are_read_once() -> Iterator[None]:
    """Thousands of engines start here, and what is installed does not change. Where a test changes the path, or what
    the path has, it is read anew."""
    read, known, start = discovery.discover, [], (list(sys.path), metadata.distributions)

    def discover(path: Sequence[str] | None = None) -> dict[str, PluginDeclaration]:
        if path is not None or (sys.path, metadata.distributions) != start:
            return read(path)
        if not known:
            known.append(read())
        return dict(known[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "discover", discover)
        yield


@pytest.fixture(autouse=True, scope="session")
def steps_are_timed_once() -> Iterator[None]:
    """What steps take decides no token: engines time them for a moment. `test_step_costs` times them in earnest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure_costs, "ROUNDS", 1)
        patch.setattr(measure_costs, "ROUNDS_OF_FEW_ROWS", 1)
        yield


@pytest.fixture(autouse=True)
def one_thread_afterwards():
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="module", params=["torch", "cpu"])
def each_kernel_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """The module's tests with torch's kernels, and once more with the native ones, which are on by default."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engines.DEFAULTS, "default_plugins", request.param == "cpu")
        yield request.param


@pytest.fixture(scope="session")
def demo_model() -> Path:
    return locate_model("demo")


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    from tiny_tokenizer import write_model_dir

    path = tmp_path_factory.mktemp("model")
    write_model_dir(path)
    return HfTokenizer.from_dir(path)
