"""Makes what a client looks up before a request cost no switch of threads: proxies and passwords, which aiohttp asks a
thread for. On two busy cores that takes milliseconds, which would be measured in place of the client.

Both workers call it, and what the clients do stays as it is. Standard library only, for vLLM's environment has it, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def in_the_loops_thread() -> None:
    """From now on, for all event loops of this process."""
    asyncio.BaseEventLoop.run_in_executor = run_now  # type: ignore[method-assign, assignment]


def run_now(
    loop: asyncio.BaseEventLoop, executor: object, call: Callable[..., Any], *arguments: object
) -> asyncio.Future[Any]:
    """In place of `run_in_executor`."""
    future = loop.create_future()
    try:
        future.set_result(call(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future
