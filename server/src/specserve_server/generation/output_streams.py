"""The engine's streams of all choices of a response, as one stream.

Closing it closes every engine stream, which aborts what still runs.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeAlias

from specserve.errors import EngineDeadError
from specserve_server.generation.answer_checks import check_answer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from specserve.types import RequestOutput
    from specserve_server.engine_client import EngineClient
    from specserve_server.generation.choices import Choice, CompletionOutput

    OutputQueue: TypeAlias = asyncio.Queue[tuple[Choice, RequestOutput] | BaseException | None]
    """None: one stream has ended."""


async def stream_outputs(
    engine: EngineClient, choices: Sequence[Choice]
) -> AsyncGenerator[tuple[Choice, CompletionOutput], None]:
    """Outputs of all choices in order of arrival. Close it with `aclosing`."""
    async with aclosing(merge_streams(engine, choices)) as stream:
        async for choice, request_output in stream:
            output = choice.update(request_output)
            if output is None:
                continue
            if output.finish_reason is not None:
                await check_answer(engine, choice)
            yield choice, output
    if any(choice.finish_reason is None for choice in choices):
        raise EngineDeadError("the engine ended before the request did.")


async def merge_streams(
    engine: EngineClient, choices: Sequence[Choice]
) -> AsyncGenerator[tuple[Choice, RequestOutput], None]:
    if len(choices) == 1:
        async with aclosing(engine.submit(choices[0].request)) as stream:
            async for output in stream:
                yield choices[0], output
        return
    # A slow reader fills the queue; the engine then merges the outputs that wait, per request.
    queue: OutputQueue = asyncio.Queue(maxsize=len(choices))
    tasks = [asyncio.create_task(enqueue_outputs(engine, choice, queue)) for choice in choices]
    try:
        num_running = len(tasks)
        while num_running:
            item = await queue.get()
            if item is None:
                num_running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def enqueue_outputs(engine: EngineClient, choice: Choice, queue: OutputQueue) -> None:
    try:
        async with aclosing(engine.submit(choice.request)) as stream:
            async for output in stream:
                await queue.put((choice, output))
        await queue.put(None)
    except Exception as error:
        await queue.put(error)
