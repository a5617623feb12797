"""What a server has loaded is left out by the garbage collector: a visit of all of it would hold up every stream."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from specserve.config import EngineConfig
from specserve_server.engines.load import left_out_by_the_garbage_collector, load_engine
from specserve_workbench.testing import engines

if TYPE_CHECKING:
    from pathlib import Path


def test_an_engine_that_was_started_is_visited_by_no_collection(toy_model: Path) -> None:
    before = gc.get_freeze_count()

    async def start_and_stop() -> None:
        config = EngineConfig(model=str(toy_model), **engines.DEFAULTS)
        engine = await load_engine(config)
        assert all(visited is not engine.engine for visited in gc.get_objects())
        await engine.stop()

    asyncio.run(start_and_stop())
    assert gc.get_freeze_count() - before > 1000
    assert gc.isenabled()


def fail_to_start() -> None:
    with left_out_by_the_garbage_collector():
        assert not gc.isenabled()
        raise ValueError("no model")


def test_a_start_that_fails_leaves_the_collector_at_work() -> None:
    with pytest.raises(ValueError, match="no model"):
        fail_to_start()
    assert gc.isenabled()
