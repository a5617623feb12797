"""Waiting for signals, and for the first of several events."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """`first` and `second` are set by SIGINT or SIGTERM; a third has its default effect."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def __enter__(self) -> Signals:
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _handle(self) -> None:
        if not self.first.is_set():
            self.first.set()
            return
        self.second.set()
        self.__exit__()


async def wait_for_first(*awaitables: Awaitable[object]) -> None:
    """Wait for one of them and raise its error; the others are cancelled. A task that was passed in has an owner: it is
    not cancelled and its error is not raised."""
    own = [asyncio.ensure_future(each) for each in awaitables if not isinstance(each, asyncio.Task)]
    given = [each for each in awaitables if isinstance(each, asyncio.Task)]
    try:
        done, _ = await asyncio.wait([*given, *own], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in own:
            task.cancel()
        await asyncio.gather(*own, return_exceptions=True)
    for task in own:
        if task in done:
            task.result()
