"""In which steps a request is asked for draft tokens."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest
from planning_cases import with_draft

from specserve.speculation.backoff import (
    EXPONENT,
    FIRST_GRACE_STEPS,
    GRACE_STEPS,
    LONGEST_INTERVAL,
    MAX_INTERVAL,
    MIN_INTERVAL,
    AskingCost,
    DraftBackoff,
)
from specserve.speculation.outcomes import ENOUGH, Prices

PRICES = Prices(accepted=1.0, verified=0.1)
"""Ten verified draft tokens take as long as one accepted saves."""


@cache
def named(name):
    """The same request object every time: `select` compares the lists of requests."""
    return with_draft(None, name=name)


def steps_asked(backoff, steps, after=lambda: None, name="r"):
    """In which of the next steps the request is asked; `after` happens in each of those."""
    request, asked = named(name), []
    for _ in range(steps):
        asked += backoff.select([request], PRICES)
        if asked[-1]:
            after()
    return asked


def costly(seconds=1.0):
    """Asking one request costs so much."""
    backoff = DraftBackoff()
    backoff.cost.observe(seconds, 1)
    return backoff


def test_a_request_whose_draft_tokens_save_nothing_is_asked_at_first_and_then_rarely():
    asked = steps_asked(costly(), 12 * MAX_INTERVAL)
    assert all(asked[:FIRST_GRACE_STEPS])
    assert sum(asked[-10 * MAX_INTERVAL :]) == 10


def test_draft_tokens_that_save_less_than_asking_costs_do_not_keep_it_going():
    backoff = costly()
    asked = steps_asked(backoff, 12 * MAX_INTERVAL, lambda: backoff.record("r", 1, 5))
    assert sum(asked[-10 * MAX_INTERVAL :]) < 20


def test_draft_tokens_that_save_more_than_asking_costs_keep_it_going():
    backoff = costly()
    assert all(steps_asked(backoff, 200, lambda: backoff.record("r", 2, 3)))


def test_what_verification_takes_counts_against_what_is_accepted():
    backoff = costly()
    asked = steps_asked(backoff, 12 * MAX_INTERVAL, lambda: backoff.record("r", 2, 15))
    assert sum(asked[-10 * MAX_INTERVAL :]) < 20


def test_a_bad_draft_now_and_then_does_not_stop_a_request_that_saves_on_average():
    """Chance is large: a third of the drafts saves nothing, the others two and a half times what asking costs."""
    backoff, count = costly(), iter(range(10_000))
    asked = steps_asked(backoff, 600, lambda: backoff.record("r", 3 if next(count) % 3 else 0, 5))
    assert sum(asked[50:]) > 0.95 * len(asked[50:])


def test_a_request_that_begins_to_save_is_asked_every_time_again():
    backoff = costly()
    steps_asked(backoff, 100)
    asked = steps_asked(backoff, 120, lambda: backoff.record("r", 8, 8))
    assert not asked[0]
    assert all(asked[2 * MAX_INTERVAL :])


def test_a_request_that_stops_saving_is_asked_rarely_again():
    backoff = costly()
    steps_asked(backoff, 100, lambda: backoff.record("r", 3, 3))
    assert sum(steps_asked(backoff, 300)[100:]) < 40


def test_one_accepted_draft_token_revives_a_request_for_some_steps():
    backoff = costly()
    steps_asked(backoff, 100)
    backoff.revive("r")
    asked = steps_asked(backoff, MIN_INTERVAL)
    assert asked[0]
    assert asked.count(True) in (GRACE_STEPS, GRACE_STEPS + 1)


def test_what_is_recorded_while_all_requests_back_off_counts_at_once():
    """The draft tokens of one step are verified in the next, when the request backs off already."""
    backoff = costly()
    steps_asked(backoff, 100)
    while any(steps_asked(backoff, 1)):
        pass
    backoff.record("r", 20, 20)
    assert steps_asked(backoff, 1) == [True]


def test_a_new_request_is_asked_at_once_while_the_others_back_off():
    backoff = costly()
    old, new = (with_draft(None, name=name) for name in ("r", "new"))
    for _ in range(2 * MIN_INTERVAL):
        backoff.select([old], PRICES)
    while any(backoff.select([old], PRICES)):
        pass
    assert backoff.select([old, new], PRICES) == [False, True]
    assert backoff.select([new], PRICES) == [True]


def test_requests_that_back_off_are_asked_in_the_same_steps():
    backoff = costly()
    early, late = (with_draft(None, name=name) for name in "ab")
    steps_asked(backoff, 5, name="a")
    together = [backoff.select([early, late], PRICES) for _ in range(12 * MAX_INTERVAL)]
    assert all(a == b for a, b in together[-8 * MAX_INTERVAL :])


def test_the_cost_of_asking_is_learned_where_requests_are_asked_in_every_step():
    backoff = costly()
    steps_asked(backoff, 2)
    backoff.record_cost(3.0, 1)
    assert backoff.cost.seconds(1) > 1.2
    before = backoff.cost.seconds(1)
    steps_asked(backoff, 100)
    while not any(steps_asked(backoff, 1)):
        pass
    backoff.record_cost(9.0, 1)
    assert backoff.cost.seconds(1) == before, "the drafter also reads the text of the steps between"


def test_records_of_requests_that_ended_unseen_are_dropped():
    backoff = DraftBackoff()
    for i in range(1000):
        steps_asked(backoff, 1, name=str(i))
    assert len(backoff.records) < 100


def paid_together(num_requests, accepted):
    """Steps in which the requests are asked, where a pass for any number of them costs a second."""
    backoff, requests = DraftBackoff(), [named(f"p{i}") for i in range(num_requests)]
    backoff.cost.fixed, backoff.cost.more = 1.0, 1e-6
    asked = []
    prices = Prices(accepted, 0.0)
    for _ in range(200):
        asked.append(backoff.select(requests, prices))
        for request, yes in zip(requests, asked[-1], strict=True):
            if yes:
                backoff.record(request.id, 1, 1)
    return asked[100:]


def test_requests_that_pay_for_a_shared_pass_together_are_all_asked():
    assert all(map(all, paid_together(8, 0.2)))


def test_one_request_that_does_not_pay_for_a_pass_alone_backs_off():
    assert sum(map(any, paid_together(1, 0.2))) < 10


def test_both_parts_of_the_cost_are_learned():
    cost = AskingCost()
    for step in range(4000):
        num_asked = (1, 8, 3, 5)[step % 4]
        cost.observe(4.0 + 0.5 * num_asked**EXPONENT, num_asked)
    assert abs(cost.fixed - 4.0) < 0.1
    assert abs(cost.more - 0.5) < 0.05


def test_a_first_question_that_took_long_is_soon_corrected():
    cost = AskingCost()
    cost.observe(10.0, 1)
    for _ in range(12):
        cost.observe(1.0, 1)
    assert cost.seconds(1) < 3.0


def before_it(backoff, accepted, count=8):
    """So many requests were asked and ended; in every step in which one was asked, as much was accepted."""
    for i in range(count):
        request = named(f"e{i}")
        for _ in range(FIRST_GRACE_STEPS):
            if backoff.select([request], PRICES)[0]:
                backoff.record(request.id, accepted, 0)
        backoff.forget(request.id)


@pytest.mark.parametrize(
    ("accepted", "cost", "asked"),
    [(0, 1.0, 0), (1, 10.0, 0), (1, 1.5, 1), (3, 1.0, 4)],
    ids=["nothing", "little", "more than half", "more than it costs"],
)
def test_new_requests_are_asked_as_far_as_those_before_them_saved_what_asking_costs(accepted, cost, asked):
    backoff = costly(cost)
    before_it(backoff, accepted)
    backoff.step = 0
    assert steps_asked(backoff, 6) == [step < asked for step in range(6)]


def test_requests_of_another_temperature_tell_nothing():
    backoff = costly()
    before_it(backoff, 0)
    named("s").params = msgspec.structs.replace(named("s").params, temperature=1.0)
    assert steps_asked(backoff, FIRST_GRACE_STEPS, name="s") == [True] * FIRST_GRACE_STEPS


def test_requests_that_were_never_asked_tell_nothing():
    backoff = costly()
    before_it(backoff, 0)
    typical = backoff.typical.of(named("unasked"))
    before = typical.sums.drafts
    assert before >= ENOUGH
    steps_asked(backoff, 3, name="unasked")
    backoff.forget("unasked")
    assert typical.sums.drafts == before


def test_one_draft_that_saves_its_share_is_followed_by_another():
    backoff = costly()
    steps_asked(backoff, 100)
    backoff.record("r", 1, 0)
    assert steps_asked(backoff, 1) == [True]


def test_one_draft_that_saves_less_is_not():
    backoff = costly()
    steps_asked(backoff, 100)
    while any(steps_asked(backoff, 1)):
        pass
    backoff.record("r", 1, 1)
    assert steps_asked(backoff, 1) == [False]


def test_what_is_costly_against_a_step_is_asked_for_more_rarely():
    """Asking costs a second and may take a hundredth of the time: steps of a second need 100 of them in between."""
    backoff = costly()
    backoff.step_seconds = 1.0
    asked = steps_asked(backoff, 20 * LONGEST_INTERVAL)
    assert sum(asked[-10 * LONGEST_INTERVAL :]) == 10 * LONGEST_INTERVAL // 128


def test_what_nearly_pays_is_tried_more_often():
    """Only what is lost counts."""
    backoff = costly(1.2)
    backoff.step_seconds = 1.0
    asked = steps_asked(backoff, 20 * LONGEST_INTERVAL, lambda: backoff.record("r", 1, 0))
    assert sum(asked[-10 * LONGEST_INTERVAL :]) > 9 * LONGEST_INTERVAL // 40


def test_a_draft_that_there_was_no_room_for_is_not_held_against_its_request():
    backoff = costly()

    def judge():
        backoff.take_back("r")

    steps_asked(backoff, FIRST_GRACE_STEPS, judge)
    assert backoff.records["r"].outcomes.sums.drafts == 0
    assert backoff.typical.of(named("r")).sums.drafts < 0.5
