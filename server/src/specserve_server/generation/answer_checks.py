"""Ended answers, checked by plugins for what could not be enforced while they were generated.

Owns the threads in which that happens: a check that takes long keeps nothing but its own answer waiting.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from specserve.faults import BadAnswerError
from specserve.protocols import AnswerCheck
from specserve_checks.wrong_values import convert

if TYPE_CHECKING:
    from specserve_server.engine_client import EngineClient
    from specserve_server.generation.choices import Choice

THREADS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="specserve-answers")
"""Most checks take no time, and are not to wait for those that do."""


async def check_answer(engine: EngineClient, choice: Choice) -> None:
    """Set `choice.check`, where a form was asked for."""
    if choice.request.params.structured_output is None or choice.discard_output:
        return
    arguments = {"request": choice.request, "text": "".join(choice.texts), "finish_reason": choice.finish_reason}
    ask = partial(engine.plugins.try_collect, "check_answer", checked, **arguments)
    found, _ = await asyncio.get_running_loop().run_in_executor(THREADS, ask)
    checks = [check for _, check in found]
    if checks:
        choice.check = AnswerCheck(
            valid=combined([check.valid for check in checks]),
            unenforced=tuple(text for check in checks for text in check.unenforced),
            errors=tuple(text for check in checks for text in check.errors),
        )


def checked(result: object) -> AnswerCheck:
    if not isinstance(result, AnswerCheck):
        raise BadAnswerError("returned something else than an AnswerCheck")
    wrong = "returned an AnswerCheck with a wrong field: "
    return convert(msgspec.to_builtins(result), AnswerCheck, lambda found: BadAnswerError(f"{wrong}{found}"))


def combined(found: list[bool | None]) -> bool | None:
    if False in found:
        return False
    return None if None in found else True
