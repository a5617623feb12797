"""The reference answers: each case alone on a server of its own, which drafts nothing and caches nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

from server_process import ServerProcess, stopped_well
from soak.cases import MOVING, VERSIONS
from soak.http import ask

if TYPE_CHECKING:
    from soak.answers import Answer
    from soak.cases import Case
    from soak.setting import Setting


async def reference_answers(setting: Setting, cases: list[Case]) -> dict[str, list[Answer]]:
    """By case, what it may answer: one answer, or for the adapter that is replaced one of each version."""
    with stopped_well(ServerProcess(setting.reference_command, setting.folder / "reference.log")) as server:
        async with aiohttp.ClientSession(server.url) as session:
            return {case.name: [await answer_of(session, case, model) for model in models_of(case)] for case in cases}


def models_of(case: Case) -> tuple[str | None, ...]:
    return VERSIONS if case.model == MOVING else (case.model,)


async def answer_of(session: aiohttp.ClientSession, case: Case, model: str | None) -> Answer:
    answer, _ = await ask(session, case.path, case.body | {"model": model, "speculation": {"enabled": False}})
    return answer
