"""Ended answers, checked by plugins for what could not be enforced while they were generated.

Owns the threads in which that happens: a check that takes long keeps nothing but its own answer waiting.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from specserve.protocols import AnswerCheck

if TYPE_CHECKING:
    from specserve_server.engine_client import EngineClient
    from specserve_server.generation.choices import Choice

THREADS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="specserve-answers")
"""Most checks take no time, and are not to wait for those that do."""


async def check_answer(engine: EngineClient, choice: Choice) -> None:
    """Set `choice.check`, where a form was asked for."""
    if choice.request.params.structured_output is None or choice.discard_output:
        return
    assert choice.finish_reason is not None, "it has ended"
    ask = partial(engine.check_answer, choice.request, "".join(choice.texts), choice.finish_reason)
    checks = await asyncio.get_running_loop().run_in_executor(THREADS, ask)
    if checks:
        choice.check = AnswerCheck(
            valid=combined([check.valid for check in checks]),
            unenforced=tuple(text for check in checks for text in check.unenforced),
            errors=tuple(text for check in checks for text in check.errors),
        )


def combined(found: list[bool | None]) -> bool | None:
    if False in found:
        return False
    return None if None in found else True
