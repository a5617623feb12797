"""The thread in which an engine is loaded. The event loop serves meanwhile, and the process may end before it is done.

Threads of an executor are joined when the interpreter ends, so a signal would wait for the last weight. This one is a
daemon; native code in it does not outlive the end of the interpreter, so a process that ends meanwhile skips that.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
NAME = "specserve-load"


async def run_in_loading_thread(load: Callable[[], T]) -> T:
    """What `load` returns or raises. Where this is cancelled the thread goes on, and nobody hears of it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Callable[[], None]) -> None:
        if not future.done():
            result()

    def run() -> None:
        try:
            loaded = load()
        except BaseException as error:
            raised = error  # the name of an except clause ends with it
            post(lambda: future.set_exception(raised))
        else:
            post(lambda: future.set_result(loaded))

    def post(result: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(settle, result)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), name=NAME, daemon=True)
    thread.start()
    try:
        return await future
    finally:
        if future.done() and not future.cancelled():
            thread.join()  # it has nothing left to do: who looks for a thread that loads must not find it


def is_loading() -> bool:
    return any(thread.name == NAME for thread in threading.enumerate())


def exit_at_once(code: int) -> None:
    """End the process without waiting for the loading thread. What has to be undone was undone before."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader has left, or it is closed
            stream.flush()
    os._exit(code)
