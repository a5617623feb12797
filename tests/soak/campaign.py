"""A whole run: references, warm-up, the long part, and the judgement of what is left."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import TYPE_CHECKING

import aiohttp

from server_process import ServerProcess
from soak.cases import draw_cases
from soak.clients import PATIENCE_SECONDS, Run, client
from soak.http import is_idle
from soak.leaks import MOST_GROWTH, State, growth, leaks, not_reached, state_of
from soak.ledger import Ledger
from soak.operators import change_adapters, change_corpora, read_the_metrics, reset_the_cache
from soak.outside import errors_in, processes_of, resources_of
from soak.references import reference_answers
from soak.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from soak.answers import Answer
    from soak.cases import Case
    from soak.setting import Setting

WARM_SHARE, MOST_WARM_SECONDS = 0.25, 60.0
"""The state at the end is compared with that after this part of the run."""

OPERATORS = (change_adapters, change_corpora, reset_the_cache)
SETTLE_SECONDS = 0.5
"""Connections that clients have closed are closed here, too, and pins of adapters are given back."""


class Table:
    """The cases of a seed and what they answer."""

    def __init__(self, cases: list[Case], expected: dict[str, list[Answer]]) -> None:
        self.cases, self.expected = cases, expected

    @classmethod
    async def make(cls, setting: Setting, seed: int) -> Table:
        cases = draw_cases(seed, setting.num_cases)
        return cls(cases, await reference_answers(setting, cases))


async def soak(setting: Setting, seed: int, seconds: float, table: Table) -> Report:
    """`table`: the cases and their references."""
    ledger = Ledger(setting.folder)
    log = setting.folder / "server.log"
    with ServerProcess(setting.command, log, variables=setting.variables) as server:
        memory: list[int] = []
        sampling = asyncio.create_task(sample_memory(processes_of(server), memory))
        warm = min(seconds * WARM_SHARE, MOST_WARM_SECONDS)
        before = await serve(setting, server, table, ledger, f"{seed} warm", warm)
        began, had = time.perf_counter(), ledger.requests.total()
        after = await serve(setting, server, table, ledger, f"{seed}", seconds - warm)
        rate = (ledger.requests.total() - had) / (time.perf_counter() - began)
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
        judge(ledger, before, after, memory)
        (setting.folder / "memory.json").write_text(json.dumps(memory))
        if (code := server.stop()) != 0:
            ledger.fail("exit", f"the exit code after SIGTERM is {code}")
        for line in errors_in(log):
            ledger.fail("log", line)
    return Report(ledger, rate, seconds, memory, after)


async def serve(
    setting: Setting, server: ServerProcess, table: Table, ledger: Ledger, seed: str, seconds: float
) -> State | None:
    """Clients and operators for some seconds, then the idle server's state; None where it does not become idle."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(server.url, connector=connector, read_bufsize=2**12) as session:
        run = Run(session, table.cases, table.expected, ledger, asyncio.get_running_loop().time() + seconds)
        tasks = [client(run, f"{seed} {i}") for i in range(setting.num_clients)]
        tasks += [operator(run, random.Random(f"{seed} {operator.__name__}")) for operator in OPERATORS]
        tasks.append(read_the_metrics(run, setting.max_num_seqs))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                ledger.fail("lost", f"a client ended with {type(error).__name__}: {error}")
    return await idle_state(server, ledger)


async def idle_state(server: ServerProcess, ledger: Ledger) -> State | None:
    """None where the server is gone, or does not become idle."""
    try:
        async with aiohttp.ClientSession(server.url) as session:
            if await is_idle(session, PATIENCE_SECONDS):
                await asyncio.sleep(SETTLE_SECONDS)
                return await state_of(session, resources_of(processes_of(server)))
        ledger.fail("leaked", "requests still run or wait although no client is there")
    except aiohttp.ClientError as error:
        ledger.fail("exit", f"the server does not answer any more: {error}")
    return None


def judge(ledger: Ledger, before: State | None, after: State | None, memory: list[int]) -> None:
    if before is None or after is None:
        return
    for leak in leaks(before, after):
        ledger.fail("leaked", leak)
    if (grown := growth(memory)) > MOST_GROWTH:
        ledger.fail("leaked", f"memory grew by {grown:.1%} in the last quarter, {MOST_GROWTH:.0%} allowed")
    for what in not_reached(after):
        ledger.fail("not reached", what)


async def sample_memory(pids: Sequence[int], memory: list[int]) -> None:
    """Until it is cancelled, or one of them is gone."""
    while True:
        memory.append(resources_of(pids).memory_bytes)
        await asyncio.sleep(0.5)
