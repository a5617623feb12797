"""When a drafter is asked for guesses at all."""

from __future__ import annotations

from functools import cache

from planning_cases import with_draft

from specserve.speculation.asking import FIRST_PATIENCE, LONG_REST, PATIENCE, SHORT_REST, Asking


@cache
def named(name):
    """The same request every time: of those that rest, nobody is looked at."""
    return with_draft(None, name=name)


def turns(asking, steps, after=lambda: None, name="r"):
    """In which of the next steps the request is asked; `after` happens in each of those."""
    request, asked = named(name), []
    for _ in range(steps):
        asked += asking.whom([request])
        if asked[-1]:
            after()
    return asked


def costly():
    asking = Asking()
    turns(asking, 1, name="other")
    asking.cost(1.0, 1)
    return asking


def test_a_request_whose_guesses_save_nothing_is_asked_at_first_and_then_rarely():
    asked = turns(costly(), 12 * LONG_REST)
    assert all(asked[:FIRST_PATIENCE])
    assert sum(asked[-10 * LONG_REST :]) == 10


def test_guesses_that_save_less_than_asking_costs_do_not_keep_it_going():
    asking = costly()
    asked = turns(asking, 12 * LONG_REST, lambda: asking.credit("r", 0.5))
    assert sum(asked[-10 * LONG_REST :]) < 20


def test_guesses_that_save_more_than_asking_costs_keep_it_going():
    asking = costly()
    assert all(turns(asking, 200, lambda: asking.credit("r", 2.0)))


def test_a_request_that_begins_to_save_is_asked_every_time_again():
    asking = costly()
    turns(asking, 100)
    asked = turns(asking, 60, lambda: asking.credit("r", 20.0))
    assert not asked[0]
    assert all(asked[LONG_REST:])


def test_one_guess_that_came_true_is_reason_to_ask_some_times_more():
    asking = costly()
    turns(asking, 100)
    asking.hope("r")
    asked = turns(asking, SHORT_REST)
    assert asked[0]
    assert asked.count(True) in (PATIENCE, PATIENCE + 1)


def test_what_came_in_while_all_rest_counts_at_once():
    """The guesses of one step are verified in the next, when the request rests already."""
    asking = costly()
    turns(asking, 100)
    while any(turns(asking, 1)):
        pass
    asking.credit("r", 20.0)
    assert turns(asking, 1) == [True]


def test_who_comes_while_the_others_rest_is_asked_at_once():
    asking = costly()
    old, new = (with_draft(None, name=name) for name in ("r", "new"))
    for _ in range(4 * LONG_REST):
        asking.whom([old])
    while any(asking.whom([old])):
        pass
    assert asking.whom([old, new]) == [False, True]
    assert asking.whom([new]) == [True]


def test_requests_that_rest_are_asked_in_the_same_steps():
    asking = costly()
    early, late = (with_draft(None, name=name) for name in "ab")
    turns(asking, 5, name="a")
    together = [asking.whom([early, late]) for _ in range(12 * LONG_REST)]
    assert all(a == b for a, b in together[-8 * LONG_REST :])


def test_what_asking_costs_is_learned_from_those_that_do_not_rest():
    asking = costly()
    turns(asking, 100)
    asking.cost(9.0, 1)
    assert asking.seconds == 1.0, "text that was held back is taken in, too"


def test_records_of_requests_that_ended_unseen_are_dropped():
    asking = Asking()
    for i in range(1000):
        turns(asking, 1, name=str(i))
    assert len(asking.records) < 100
