"""A simulated server with one drafter or two against plain decoding, as requests of 200 tokens come and go."""

from __future__ import annotations

import pytest
from serving_simulation import Costs, Machine, Serving

PASSES = {1: 0.5e-3, 8: 0.55e-3, 16: 0.89e-3, 32: 1.7e-3, 64: 3.1e-3, 160: 7.7e-3, 320: 15.4e-3}
MACHINE = Machine(PASSES, 0.105e-3)
NGRAM = Costs(6e-6, 3e-6, cold=1.3), 16
HEAD = "head"
LEVELS = 3


def head(share, count):
    """Three draft tokens for each of `count` requests take this share of a plain step."""
    first = share * MACHINE.step(count, count) / (1 + 2 / 3)
    fixed = 0.12 * share * MACHINE.step(32, 32) / (1 + 2 / 3)
    fixed = min(fixed, 0.6 * first)
    return Costs(fixed, (first - fixed) / count, 1 / 3, 2e-6, 1.5), LEVELS


def texts(right):
    """Draft tokens of the head are right with this probability; n-gram drafts are seldom right."""

    def of_request(number):
        return lambda name, place: right if name == HEAD else 0.1 if (place // 4 * 7 + number) % 10 < 4 else None

    return of_request


@pytest.mark.parametrize("count", [1, 8, 32])
@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
@pytest.mark.parametrize("drafters", [(HEAD,), ("ngram", HEAD)])
def test_drafts_that_do_not_pay_cost_little(monkeypatch, count, share, drafters):
    costs = {name: head(share, count) if name == HEAD else NGRAM for name in drafters}
    speeds = [
        Serving(monkeypatch, MACHINE, costs, count, texts(0.08), seed=seed).run(210).reset().run(400).ratio()
        for seed in range(2 if count > 1 else 4)
    ]
    assert sum(speeds) / len(speeds) > 0.98


@pytest.mark.parametrize("count", [8, 32])
def test_a_drafter_of_few_levels_is_not_priced_as_one_of_many(monkeypatch, count):
    """A draft for all takes as long as a plain step and saves more. Priced as deeper it seems too dear."""
    run = Serving(monkeypatch, MACHINE, {HEAD: head(1.0, count)}, count, texts(0.96)).run(210).reset().run(300)
    assert run.ratio() > 1.2
