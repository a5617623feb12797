"""A rank that ends takes the engine with it, at once and with one message; the engine takes its ranks with it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time

import pytest
from rank_engines import others_of, rank_options, ranks_of, running
from running_engine import collect, endless, started, until

from specserve.errors import ConfigError, EngineDeadError
from specserve_tensor_parallel import processes
from specserve_tensor_parallel.leading import LeadingPart
from specserve_tensor_parallel.processes import RankLostError
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import varied_requests

KILLED = r"rank 1 \(process \d+\) was ended by signal 9 \(SIGKILL\)"
SECONDS = 10.0
"""Far below the time-out of a collective."""


def pids_of(engine):
    return [rank.process.pid for rank in others_of(engine)]


async def test_a_rank_that_is_killed_in_a_step_ends_the_engine_with_one_message(toy_model, caplog):
    async with started(toy_model, **rank_options(2)) as engine:
        pids = pids_of(engine.engine)
        reader = asyncio.create_task(collect(engine, endless()))
        await until(lambda: engine.metrics.generation_tokens > 5)
        began = time.monotonic()
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(EngineDeadError, match=KILLED):
            await reader
        assert isinstance(await engine.failed(), RankLostError)
        assert time.monotonic() - began < SECONDS
        assert engine.status == "dead"
    assert not running(pids)
    assert not caplog.records


async def test_a_rank_that_is_killed_while_nothing_runs_ends_the_engine(toy_model):
    async with started(toy_model, **rank_options(4)) as engine:
        pids = pids_of(engine.engine)
        os.kill(pids[1], signal.SIGKILL)
        error = await asyncio.wait_for(engine.failed(), SECONDS)
        assert re.search(r"rank 2 \(process \d+\) was ended by signal 9", str(error))
        await until(lambda: not running(pids))


def test_a_pass_that_raises_on_rank_0_alone_ends_the_engine_instead_of_mixing_steps_up(toy_model):
    """The other ranks are within the step: their next gather would meet that of another step."""
    with ranks_of(toy_model) as engine:
        run_requests(engine, varied_requests(2))
        backend = engine.runner.attention

        def fail(batch):
            raise ValueError("no plan")

        backend.plan = fail
        with pytest.raises(RankLostError, match="rank 0's forward pass raised ValueError: no plan"):
            run_requests(engine, varied_requests(2, seed=1))


def test_a_rank_that_ends_while_it_loads_stops_the_start_with_its_last_words(toy_model, monkeypatch):
    monkeypatch.setattr(processes, "WORKER", "specserve_tensor_parallel.no_such_module")
    with pytest.raises(ConfigError, match=r"(?s)rank 1 .* ended with exit code 1.*last lines:\n.*No module named"):
        make_engine(toy_model, **rank_options(2))


def test_a_rank_that_is_killed_while_rank_0_still_loads_stops_the_start(toy_model, monkeypatch):
    numbers = LeadingPart.numbers

    def kill_and_go_on(self, config):
        os.kill(self.others.all[0].process.pid, signal.SIGKILL)
        assert self.others.fate.told.wait(SECONDS)
        return numbers(self, config)

    monkeypatch.setattr(LeadingPart, "numbers", kill_and_go_on)
    with pytest.raises(ConfigError, match=KILLED):
        make_engine(toy_model, **rank_options(2))


def test_a_start_that_fails_on_rank_0_leaves_no_rank(toy_model, monkeypatch):
    started_ranks = []
    start = processes.start

    def start_and_tell(*arguments):
        started_ranks.append(start(*arguments))
        return started_ranks[-1]

    monkeypatch.setattr(processes, "start", start_and_tell)
    with pytest.raises(ConfigError, match="at least two blocks"):
        make_engine(toy_model, **rank_options(2), kv_memory="1K")
    assert started_ranks
    assert not running([rank.process.pid for rank in started_ranks])
