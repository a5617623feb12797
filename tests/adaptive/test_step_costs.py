"""What a step is expected to cost: measured at start-up and corrected by real steps."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planning_cases import batch_of, chain, with_draft
from specserve.batch.span import ScheduledSpan
from specserve.engine import measure_costs as measuring
from specserve.engine.measure_costs import POINTS, ROUNDS, ROUNDS_OF_FEW_ROWS, CostProbe, measure_costs
from specserve_adaptive.step_costs import StepCosts
from specserve_workbench.testing.engines import make_engine


def test_costs_are_interpolated_between_points_and_extended_in_proportion():
    costs = StepCosts([1, 11, 21], [1.0, 2.0, 6.0])
    assert [costs.seconds(rows, 1) for rows in (0, 1, 6, 11, 16, 21, 42)] == [1.0, 1.0, 1.5, 2.0, 4.0, 6.0, 12.0]


@given(st.lists(st.floats(0.001, 10.0), min_size=2, max_size=8), st.integers(1, 3))
def test_costs_never_fall_with_more_guesses(seconds, requests):
    costs = StepCosts([2 * i + 1 for i in range(len(seconds))], list(seconds))
    table = costs.by_draft_tokens(requests, requests, 4 * len(seconds))
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(table))
    assert table == pytest.approx([costs.seconds(requests + n, requests, n) for n in range(len(table))])


def plain_batch(num_requests):
    return batch_of(*(ScheduledSpan.of(with_draft(None), 63, 1, scored=1) for _ in range(num_requests)))


def guessing_batch(guesses):
    return batch_of(ScheduledSpan.of(with_draft(None), 60, 1, scored=1 + guesses, draft=chain(*[1.0] * guesses)))


def test_plain_steps_teach_what_a_batch_of_their_size_takes_and_prompts_do_not():
    costs = StepCosts([1, 4, 8], [1.0, 1.0, 1.0])
    for _ in range(200):
        costs.observe(batch_of(ScheduledSpan.of(with_draft(None), 0, 8, scored=1)), 50.0)
    assert costs.seconds(1, 1) == 1.0
    for _ in range(200):
        costs.observe(plain_batch(1), 2.0)
        costs.observe(plain_batch(4), 5.0)
    assert [costs.seconds(n, n) for n in (1, 4)] == pytest.approx([2.0, 5.0], abs=0.01)
    assert costs.seconds(8, 8) == pytest.approx(5.0, abs=0.01), "the nearest size that ran"


def test_steps_with_guesses_teach_what_a_guess_takes_beyond_its_row():
    costs = StepCosts([1, 4, 8], [1.0, 1.0, 1.0])
    for _ in range(200):
        costs.observe(plain_batch(1), 1.0)
        costs.observe(guessing_batch(3), 2.5)
    assert costs.seconds(1, 1) == pytest.approx(1.0, abs=0.05)
    assert costs.seconds(4, 1, 3) == pytest.approx(2.5, abs=0.15)
    assert costs.seconds(8, 1, 7) > 3.5, "and each one more the same"


def test_a_few_plain_steps_among_many_with_guesses_tell_what_a_plain_one_takes():
    """Whatever was thought before: they are not taken for outliers."""
    costs = StepCosts([1, 32], [1.0, 1.0])
    costs.observe(plain_batch(1), 3.0)  # something else held it up
    for n in range(300):
        for guesses in (1, 2, 3):
            costs.observe(guessing_batch(guesses), 1.0 + 0.4 * guesses)
        if n % 50 == 0:
            for _ in range(3):
                costs.observe(plain_batch(1), 1.0)
    assert costs.seconds(1, 1) == pytest.approx(1.0, abs=0.1)
    assert costs.seconds(4, 1, 3) == pytest.approx(2.2, abs=0.1)


def test_the_first_steps_with_guesses_teach_most_of_what_they_cost():
    costs = StepCosts([1, 4], [1.0, 1.0])
    costs.observe(plain_batch(1), 1.0)
    for _ in range(4):
        costs.observe(guessing_batch(3), 1.8)
    assert costs.seconds(4, 1, 3) > 1.55


def test_a_high_cost_of_a_guess_is_forgotten_in_time():
    costs = StepCosts([1, 8], [1.0, 1.0])
    unseen = costs.seconds(4, 1, 3)
    for _ in range(50):
        costs.observe(plain_batch(1), 1.0)
        costs.observe(guessing_batch(3), 4.0)
    assert costs.seconds(4, 1, 3) > 2.0
    for _ in range(1000):
        costs.observe(plain_batch(1), 1.0)
    assert costs.seconds(4, 1, 3) == pytest.approx(unseen, rel=0.1)


def test_one_slow_step_moves_a_cost_a_little():
    costs = StepCosts([1, 4], [1.0, 1.0])
    for n in range(20):
        costs.observe(plain_batch(1), 1.0 + 0.01 * (-1) ** n)
    costs.observe(plain_batch(1), 1000.0)
    assert costs.seconds(1, 1) == pytest.approx(1.0, abs=0.02)


def test_steps_that_take_longer_from_now_on_are_believed_within_fifty():
    costs = StepCosts([1, 4], [1.0, 1.0])
    for n in range(100):
        costs.observe(plain_batch(1), 1.0 + 0.01 * (-1) ** n)
    for n in range(50):
        costs.observe(plain_batch(1), 3.0 + 0.03 * (-1) ** n)
    assert costs.seconds(1, 1) == pytest.approx(3.0, rel=0.05)


def test_a_longer_context_counts_from_the_first_step_that_has_it():
    costs = StepCosts([1, 4], [1.0, 1.0], per_key=0.01)
    for _ in range(50):
        costs.observe(batch_of(ScheduledSpan.of(with_draft(None), 10, 1, scored=1)), 1.1)
    costs.observe(batch_of(ScheduledSpan.of(with_draft(None), 60, 1, scored=1)), 1.6)
    assert costs.seconds(1, 1) == pytest.approx(1.6)


def test_rows_that_are_padded_to_a_graph_bucket_cost_as_much_as_the_full_bucket():
    costs = StepCosts([1, 4, 8], [1.0, 2.0, 4.0], buckets=(1, 4, 8))
    assert [costs.seconds(rows, 1) for rows in (1, 2, 4, 5, 8)] == [1.0, 2.0, 2.0, 4.0, 4.0]


@pytest.fixture
def _timed_in_earnest(monkeypatch):
    monkeypatch.setattr(measuring, "ROUNDS", ROUNDS)
    monkeypatch.setattr(measuring, "ROUNDS_OF_FEW_ROWS", ROUNDS_OF_FEW_ROWS)


@pytest.mark.usefixtures("_timed_in_earnest")
@pytest.mark.parametrize(("num_blocks", "max_rows", "expected"), [
    (64, 512, list(POINTS)), (64, 40, [1, 4, 8, 16, 32, 33]), (3, 512, [1, 4, 8, 16]), (2, 1, [1]),
])  # fmt: skip
def test_costs_are_measured_at_the_points_that_fit(toy_model, num_blocks, max_rows, expected):
    parts = make_engine(toy_model, kv_memory=f"{16 * num_blocks}K").engine.parts
    costs = measure_costs(CostProbe(parts.runner, parts.builder, num_blocks, max_rows, lambda: None), 2.0)
    assert costs.rows == expected
    assert 0 < min(costs.seconds) < 1.0
    assert costs.per_key >= 0.0


@pytest.mark.usefixtures("_timed_in_earnest")
def test_costs_are_measured_where_no_graph_bucket_fits_into_the_cache(toy_model):
    parts = make_engine(toy_model, graphs="full", graph_buckets=(48,), kv_memory="48K").engine.parts
    costs = measure_costs(CostProbe(parts.runner, parts.builder, 3, 512, lambda: None), 2.0)
    assert costs.rows == [1]
    assert costs.buckets == (48,)


@pytest.mark.usefixtures("_timed_in_earnest")
def test_a_measurement_without_time_ends_after_two_points(toy_model):
    parts = make_engine(toy_model, kv_memory="1M").engine.parts
    costs = measure_costs(CostProbe(parts.runner, parts.builder, 64, 512, lambda: None), 0.0)
    assert costs.rows == [1, 4]
    assert costs.per_key == 0.0


def test_rows_of_many_requests_may_take_less_than_the_rows_of_one_that_were_measured():
    costs = StepCosts([1, 64], [1.0, 64.0])
    for _ in range(600):
        costs.observe(plain_batch(8), 8.0)
        spans = [ScheduledSpan.of(with_draft(None), 60, 1, scored=4, draft=chain(1.0, 1.0, 1.0)) for _ in range(8)]
        costs.observe(batch_of(*spans), 8.0 + 24 * 0.5)
    assert costs.seconds(32, 8, 24) == pytest.approx(20.0, rel=0.05)
    for _ in range(600):
        costs.observe(batch_of(*spans), 8.0)
    assert costs.seconds(32, 8, 24) > costs.seconds(8, 8) + 24 * 0.25, "but no row is free"


def test_draft_tokens_never_make_a_step_shorter():
    """What was learned from wide drafts holds for narrow ones, whose rows the table says are nearly free."""
    costs = StepCosts([1, 8, 64], [1.0, 1.0, 57.0])
    costs.observe(plain_batch(1), 1.0)
    costs.sizes[1].each = -0.5
    assert costs.seconds(4, 1, 3) == costs.seconds(1, 1)
    assert costs.by_draft_tokens(1, 1, 3) == pytest.approx([costs.seconds(1 + n, 1, n) for n in range(4)])


@pytest.mark.parametrize("learned", [False, True])
def test_a_whole_row_of_prices_is_that_of_each_step_priced_alone(learned):
    """Within the table and beyond it, with what is known of single numbers of draft tokens and without."""
    costs = StepCosts([1, 4, 8, 16, 32], [1.0, 1.1, 1.1, 1.6, 3.0])
    if learned:
        costs.observe(plain_batch(2), 1.2)
        costs.sizes[2].each = 0.05
        costs.sizes[2].bends = {0: 0.4, 2: -0.1, 3: 0.3, 5: 0.7}
    alone = [costs.seconds(2 + n, 2, n) for n in range(49)]
    assert costs.by_draft_tokens(2, 2, 48) == pytest.approx(list(accumulate(alone, max)))


def test_what_draft_tokens_were_seen_to_take_is_not_forgotten_while_nobody_drafts_unless_it_is_much():
    """Much is tried again; little needs no second trial."""
    low, high = StepCosts([1, 64], [1.0, 2.0]), StepCosts([1, 64], [1.0, 2.0])
    for costs, each in ((low, 0.0), (high, 0.5)):
        costs.observe(plain_batch(1), 1.0)
        for _ in range(100):
            costs.observe(guessing_batch(3), 1.0 + 3 * each)
            costs.observe(plain_batch(1), 1.0)
    before = [costs.seconds(4, 1, 3) for costs in (low, high)]
    for costs in (low, high):
        for _ in range(400):
            costs.observe(plain_batch(1), 1.0)
    after = [costs.seconds(4, 1, 3) for costs in (low, high)]
    assert after[0] == pytest.approx(before[0], rel=0.01)
    assert after[1] < 0.8 * before[1]
