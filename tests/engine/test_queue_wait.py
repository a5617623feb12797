"""How long the queue takes: from how many wait and the pace at which they were scheduled."""

from __future__ import annotations

import pytest

from specserve.engine.queue_wait import LONGEST, QueueWait
from specserve.errors import QueueFullError
from specserve_workbench.testing.engines import make_engine
from specserve_workbench.testing.requests import toy_request


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize(("pace", "num_waiting", "seconds"), [(4, 40, 10), (4, 41, 11), (40, 3, 1), (1, 1000, LONGEST)])
def test_the_wait_is_the_length_of_the_queue_over_its_pace(
    clock: Clock, pace: int, num_waiting: int, seconds: int
) -> None:
    wait = QueueWait(clock)
    for second in range(9):
        wait.observe(num_waiting, 50 + second * pace)
        clock.now += 1
    assert wait.seconds(num_waiting, 50 + 9 * pace) == seconds


def test_what_was_long_ago_does_not_count(clock: Clock) -> None:
    wait, scheduled = QueueWait(clock), 0
    for second in range(200):
        scheduled += 1 if second < 100 else 10
        clock.now += 1
        wait.observe(100, scheduled)
    assert wait.seconds(100, scheduled) == 10


def test_where_nothing_was_scheduled_since_the_queue_began_that_takes_as_long_again(clock: Clock) -> None:
    wait = QueueWait(clock)
    wait.observe(5, 0)
    clock.now += 12.5
    assert wait.seconds(5, 0) == 13
    clock.now += 1e6
    assert wait.seconds(5, 0) == LONGEST


def test_a_queue_that_was_empty_says_nothing_of_the_next_one(clock: Clock) -> None:
    wait = QueueWait(clock)
    wait.observe(5, 0)
    clock.now += 30
    wait.observe(0, 5)
    assert wait.seconds(5, 5) == 1
    wait.observe(5, 5)
    clock.now += 2
    assert wait.seconds(5, 6) == 10


def test_a_request_that_finds_the_queue_full_is_told_its_wait(toy_model, monkeypatch, clock) -> None:
    engine = make_engine(toy_model, max_num_seqs=1, max_waiting=2).engine
    monkeypatch.setattr(engine.queue_wait, "_clock", clock)
    for name in "abc":
        engine.add(toy_request(name, range(1, 5), max_tokens=8))
    engine.step()
    clock.now += 6
    with pytest.raises(QueueFullError, match="try again in 6 s") as refused:
        engine.check(toy_request("d", range(1, 5), max_tokens=8))
    assert refused.value.retry_after == 6
    while engine.has_work:
        engine.step()
    engine.check(toy_request("d", range(1, 5), max_tokens=8))
