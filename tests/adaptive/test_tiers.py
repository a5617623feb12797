"""Tiers: widths move up and down one at a time, after a warm-up, at an interval, by batch size."""

from __future__ import annotations

from planning_cases import batch_of, chain, with_draft
from specserve.batch.span import ScheduledSpan
from specserve.types import SpanVerdict, Verdict
from specserve_adaptive.tier_settings import TierSettings
from specserve_adaptive.tiers import RETRY_INTERVAL, Tier, TierPlanner

SETTINGS = TierSettings(candidates=(1, 3, 7))


def tier(**changes):
    settings = TierSettings(**{"candidates": (1, 3, 7), **changes})
    return Tier(settings.candidates, settings)


def widths(one, accepted, steps):
    seen = []
    for _ in range(steps):
        one.begin_step()
        one.observe(min(accepted, one.width))
        seen.append(one.width)
    return seen


def test_nothing_moves_before_the_warm_up_and_then_only_at_the_interval():
    seen = widths(tier(), 7, 30)
    assert seen[:9] == [1] * 9
    assert seen[9:14] == [3] * 5, "after ten steps"
    assert seen[24:] == [7] * 6, "the average of accepted draft tokens needs two intervals to follow"


def test_a_narrower_width_follows_when_few_are_accepted():
    one = tier()
    widths(one, 7, 60)
    assert one.width == 7
    widths(one, 0, 60)
    assert one.width == 1


def test_hysteresis_keeps_a_width():
    lazy = tier(up_hysteresis=2.0)
    widths(lazy, 7, 100)
    assert lazy.width == 1
    loyal = tier(down_hysteresis=-2.0)
    widths(loyal, 7, 60)
    widths(loyal, 1, 100)
    assert loyal.width == 7, "1 accepted is more than 3 - 0.5 - 2"


def test_no_speculation_is_a_tier_that_is_left_again_in_time():
    one = tier(candidates=(0, 2))
    assert one.width == 2
    widths(one, 0, 30)
    assert one.width == 0
    for _ in range(RETRY_INTERVAL):
        one.begin_step()
    assert one.width == 2


def test_batch_sizes_have_tables_of_their_own():
    settings = TierSettings(candidates=(4,), by_batch_size={"2": (2,), "3": (0,)})
    planner = TierPlanner(settings, 32)
    requests = [with_draft(None, name=str(i)) for i in range(4)]
    assert [planner.limits(requests[:n]) for n in range(1, 5)] == [[4], [2, 2], [0, 0, 0], [0, 0, 0, 0]]


def test_a_step_teaches_the_mean_of_its_drafts():
    planner = TierPlanner(SETTINGS, 32)
    spans = [ScheduledSpan.of(with_draft(None), 60, 1, scored=4, draft=chain(1.0, 1.0, 1.0)) for _ in range(2)]
    spans.append(ScheduledSpan.of(with_draft(None), 60, 1, scored=1))
    decided = [SpanVerdict(tuple(range(n)), (1,) * (n + 1), None, None, None) for n in (3, 1, 0)]
    planner.learn(batch_of(*spans), Verdict(decided), 1.0)
    assert planner.tiers[0].average == 2.0
