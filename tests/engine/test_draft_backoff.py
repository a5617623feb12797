"""In which steps a request is asked for guesses."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest
from planning_cases import with_draft

from specserve.speculation.backoff import (
    FIRST_GRACE_STEPS,
    GRACE_STEPS,
    LONGEST_INTERVAL,
    MAX_INTERVAL,
    MIN_INTERVAL,
    AskingCost,
    DraftBackoff,
)


@cache
def named(name):
    """The same request object every time: `select` compares the lists of requests."""
    return with_draft(None, name=name)


def steps_asked(backoff, steps, after=lambda: None, name="r"):
    """In which of the next steps the request is asked; `after` happens in each of those."""
    request, asked = named(name), []
    for _ in range(steps):
        asked += backoff.select([request])
        if asked[-1]:
            after()
    return asked


def costly():
    """Asking one request costs a second."""
    backoff = DraftBackoff()
    steps_asked(backoff, 1, name="other")
    backoff.record_cost(1.0, 1)
    return backoff


def test_a_request_whose_guesses_save_nothing_is_asked_at_first_and_then_rarely():
    asked = steps_asked(costly(), 12 * MAX_INTERVAL)
    assert all(asked[:FIRST_GRACE_STEPS])
    assert sum(asked[-10 * MAX_INTERVAL :]) == 10


def test_guesses_that_save_less_than_asking_costs_do_not_keep_it_going():
    backoff = costly()
    asked = steps_asked(backoff, 12 * MAX_INTERVAL, lambda: backoff.record_savings("r", 0.5))
    assert sum(asked[-10 * MAX_INTERVAL :]) < 20


def test_guesses_that_save_more_than_asking_costs_keep_it_going():
    backoff = costly()
    assert all(steps_asked(backoff, 200, lambda: backoff.record_savings("r", 2.0)))


def test_a_request_that_begins_to_save_is_asked_every_time_again():
    backoff = costly()
    steps_asked(backoff, 100)
    asked = steps_asked(backoff, 60, lambda: backoff.record_savings("r", 20.0))
    assert not asked[0]
    assert all(asked[MAX_INTERVAL:])


def test_one_accepted_guess_revives_a_request_for_some_steps():
    backoff = costly()
    steps_asked(backoff, 100)
    backoff.revive("r")
    asked = steps_asked(backoff, MIN_INTERVAL)
    assert asked[0]
    assert asked.count(True) in (GRACE_STEPS, GRACE_STEPS + 1)


def test_savings_recorded_while_all_requests_back_off_count_at_once():
    """The guesses of one step are verified in the next, when the request backs off already."""
    backoff = costly()
    steps_asked(backoff, 100)
    while any(steps_asked(backoff, 1)):
        pass
    backoff.record_savings("r", 20.0)
    assert steps_asked(backoff, 1) == [True]


def test_a_new_request_is_asked_at_once_while_the_others_back_off():
    backoff = costly()
    old, new = (with_draft(None, name=name) for name in ("r", "new"))
    for _ in range(4 * MAX_INTERVAL):
        backoff.select([old])
    while any(backoff.select([old])):
        pass
    assert backoff.select([old, new]) == [False, True]
    assert backoff.select([new]) == [True]


def test_requests_that_back_off_are_asked_in_the_same_steps():
    backoff = costly()
    early, late = (with_draft(None, name=name) for name in "ab")
    steps_asked(backoff, 5, name="a")
    together = [backoff.select([early, late]) for _ in range(12 * MAX_INTERVAL)]
    assert all(a == b for a, b in together[-8 * MAX_INTERVAL :])


def test_the_cost_of_asking_is_learned_from_active_requests():
    backoff = costly()
    steps_asked(backoff, 100)
    backoff.record_cost(9.0, 1)
    assert backoff.cost.seconds(1) == 1.0, "the drafter also reads the text of the steps between"


def test_records_of_requests_that_ended_unseen_are_dropped():
    backoff = DraftBackoff()
    for i in range(1000):
        steps_asked(backoff, 1, name=str(i))
    assert len(backoff.records) < 100


def paid_together(num_requests, saved):
    """Steps in which the requests are asked, where a pass for any number of them costs a second."""
    backoff, requests = DraftBackoff(), [named(f"p{i}") for i in range(num_requests)]
    backoff.cost.fixed = 1.0
    asked = []
    for _ in range(200):
        asked.append(backoff.select(requests))
        for request, yes in zip(requests, asked[-1], strict=True):
            if yes:
                backoff.record_savings(request.id, saved)
    return asked[100:]


def test_requests_that_pay_for_a_shared_pass_together_are_all_asked():
    assert all(map(all, paid_together(8, 0.2)))


def test_one_request_that_does_not_pay_for_a_pass_alone_backs_off():
    assert sum(map(any, paid_together(1, 0.2))) < 10


def test_both_parts_of_the_cost_are_learned():
    cost = AskingCost()
    for step in range(2000):
        num_asked = (1, 8, 3, 5)[step % 4]
        cost.observe(4.0 + 0.5 * num_asked, num_asked)
    assert abs(cost.fixed - 4.0) < 0.1
    assert abs(cost.each - 0.5) < 0.05


def ended(backoff, saved, count=8):
    """So many requests were asked and ended; each saved as much in every step in which it was asked."""
    for i in range(count):
        request = named(f"e{i}")
        for _ in range(FIRST_GRACE_STEPS):
            if backoff.select([request])[0]:
                backoff.record_savings(request.id, saved)
        backoff.forget(request.id)


@pytest.mark.parametrize(("saved", "grace"), [(0.1, 0), (0.7, 1), (3.0, FIRST_GRACE_STEPS)])
def test_new_requests_have_grace_as_far_as_those_before_them_saved_what_asking_costs(saved, grace):
    backoff = costly()
    ended(backoff, saved)
    backoff.step = 0
    assert steps_asked(backoff, 6) == [step < grace for step in range(6)]


def test_requests_of_another_temperature_tell_nothing():
    backoff = costly()
    ended(backoff, 0.1)
    sampled = msgspec.structs.replace(named("s").params, temperature=1.0)
    named("s").params = sampled
    assert steps_asked(backoff, FIRST_GRACE_STEPS, name="s") == [True] * FIRST_GRACE_STEPS


def test_requests_that_were_never_asked_tell_nothing():
    backoff = costly()
    ended(backoff, 0.1)
    typical = backoff.typical[0.0]
    before = typical.count
    steps_asked(backoff, 3, name="unasked")
    backoff.forget("unasked")
    assert typical.count == before


def test_one_draft_that_saves_its_share_is_followed_by_another():
    backoff = costly()
    steps_asked(backoff, 100)
    backoff.record_savings("r", 1.0)
    assert steps_asked(backoff, 1) == [True]


def test_one_draft_that_saves_less_is_not():
    backoff = costly()
    steps_asked(backoff, 100)
    while any(steps_asked(backoff, 1)):
        pass
    backoff.record_savings("r", 0.9)
    assert steps_asked(backoff, 1) == [False]


def test_what_is_costly_against_a_step_is_asked_for_more_rarely():
    """Asking costs a second and may take a hundredth of the time: steps of a second need 100 of them in between."""
    backoff = costly()
    backoff.step_seconds = 1.0
    asked = steps_asked(backoff, 20 * LONGEST_INTERVAL)
    assert sum(asked[-10 * LONGEST_INTERVAL :]) == 10 * LONGEST_INTERVAL // 128
