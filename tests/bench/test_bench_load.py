"""When requests are sent, and how many at once."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time

import pytest

from specserve_bench.client.records import RequestRecord
from specserve_bench.load.arrivals import arrival_times
from specserve_bench.load.run import Load, run_load


def test_without_a_rate_all_are_sent_at_once():
    assert arrival_times(3, math.inf, 1.0, 0) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("burstiness", [0.2, 1.0, 50.0])
def test_the_last_one_is_sent_when_the_rate_says(burstiness):
    times = arrival_times(200, 25.0, burstiness, 1)
    assert times == sorted(times)
    assert times[-1] == pytest.approx(8.0)


def test_intervals_are_as_uneven_as_asked():
    """The coefficient of variation of a gamma distribution is 1 / sqrt(shape)."""
    for burstiness in (0.25, 1.0, 16.0):
        times = arrival_times(4000, 1.0, burstiness, 2)
        gaps = [b - a for a, b in zip([0.0, *times], times, strict=False)]
        mean = sum(gaps) / len(gaps)
        deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
        assert deviation / mean == pytest.approx(1 / math.sqrt(burstiness), rel=0.1)


def test_a_seed_gives_the_same_times():
    assert arrival_times(9, 3.0, 1.0, 5) == arrival_times(9, 3.0, 1.0, 5) != arrival_times(9, 3.0, 1.0, 6)


class Clients:
    """Each takes 20 ms; counts how many run."""

    def __init__(self):
        self.running = self.most = 0
        self.began = time.perf_counter()

    async def send(self, number):
        self.running += 1
        self.most = max(self.most, self.running)
        sent = time.perf_counter() - self.began
        await asyncio.sleep(0.02)
        self.running -= 1
        return RequestRecord(number=number, kind="code", sent=sent, last=time.perf_counter() - self.began - sent)


async def test_no_more_are_under_way_than_asked():
    clients, seen = Clients(), []
    run = await run_load(Load([0.0] * 9, 4), clients.send, seen.append)
    assert clients.most == 4
    assert [record.number for record in run.records] == list(range(9))
    assert len(seen) == 9
    assert 0.06 <= run.seconds <= time.perf_counter() - clients.began
    assert not run.interrupted


async def test_requests_wait_for_their_times():
    clients = Clients()
    run = await run_load(Load([0.0, 0.1, 0.2], None), clients.send, lambda record: None)
    sent = [record.sent for record in run.records]
    assert sent[1] >= 0.1
    assert sent[2] >= 0.2


async def test_an_interrupt_keeps_what_was_measured():
    clients = Clients()
    asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
    run = await run_load(Load([0.0, 0.0, 30.0], None), clients.send, lambda record: None)
    assert [record.number for record in run.records] == [0, 1]
    assert run.interrupted


@pytest.mark.parametrize("is_interrupted", [False, True])
async def test_a_run_lasts_until_its_last_answer_ended_and_an_interrupted_one_to_its_last_token(is_interrupted):
    async def send(number):
        await asyncio.sleep(30.0 if number else 0.1)
        return RequestRecord(number=number, kind="code", sent=0.0, last=0.01)

    if is_interrupted:
        asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGINT)
    run = await run_load(Load([0.0] * (1 + is_interrupted), None), send, lambda record: None)
    assert run.seconds == 0.01 if is_interrupted else 0.1 <= run.seconds < 5


async def test_an_error_of_our_own_is_not_lost():
    async def send(number):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_load(Load([0.0], None), send, lambda record: None)
