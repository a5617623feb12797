"""Loads an engine in this process, and tells what was chosen."""

from __future__ import annotations

import faulthandler
import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from specserve.load_progress import not_shown
from specserve_server.cli.draft_trace import trace_if_asked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from specserve.config import EngineConfig
    from specserve.engine.async_engine import AsyncEngine
    from specserve.load_progress import ProgressCallback
    from specserve_checks.json_types import JsonValue


async def load_engine(config: EngineConfig, on_progress: ProgressCallback = not_shown) -> AsyncEngine:
    """Raises ConfigError and its kind."""
    from specserve.engine.async_engine import AsyncEngine  # torch: not for --help

    with left_out_by_the_garbage_collector():
        engine = await AsyncEngine.start(config, on_progress=on_progress)
    trace_if_asked(engine.engine)
    return engine


def announcements(engine: AsyncEngine) -> list[str]:
    return [*banner(engine.describe()), *engine.plugins.banner()]


@contextmanager
def left_out_by_the_garbage_collector() -> Iterator[None]:
    """What is loaded inside stays to the process's end: 200,000 objects, most of them torch's. Loading then takes less
    time, and no later collection visits them, which would hold up all streams for a tenth of a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def banner(description: Mapping[str, JsonValue]) -> list[str]:
    """One line for each choice; the full configuration is in /v1/plugins."""
    return [f"{key} = {plain_text(value)}" for key, value in description.items() if key != "config"]


def plain_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def trace_crashes() -> None:
    """Where native code ends the process (a segmentation fault, an abort), standard error gets a line `Fatal Python
    error: ...` and the stack of every thread. PYTHONFAULTHANDLER or -X faulthandler, where set, did so already."""
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)
