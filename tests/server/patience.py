"""Waiting in tests, however slow the machine is: for a state, or on a clock that the test sets forward."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

PATIENCE = 60.0
"""Seconds after which what did not happen is a failure."""


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


class LoopClock:
    """The running loop's time, which a test may set forward: its timers fire as if the seconds had passed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        real = loop.time
        self.ahead = 0.0
        monkeypatch.setattr(loop, "time", lambda: real() + self.ahead)

    def advance(self, seconds: float) -> None:
        self.ahead += seconds
