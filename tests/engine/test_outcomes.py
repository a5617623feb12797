"""What the next draft of a request is expected to save."""

from __future__ import annotations

import pytest

from specserve.speculation.outcomes import FIRST_DRAFTS, Outcomes, Prices, Typical

PRICES, COST = Prices(accepted=1.0, verified=0.25), 1.0


def drafts(outcomes, count, accepted, verified, first_step=1):
    for step in range(first_step, first_step + count):
        outcomes.asked(step)
        outcomes.add(accepted, verified)
    return first_step + count


def test_a_request_whose_drafts_are_alike_is_expected_to_go_on_so():
    outcomes = Outcomes(Typical())
    step = drafts(outcomes, 10, 3, 4)
    assert outcomes.expected(PRICES, step, COST) == pytest.approx(2.0)


def test_prices_of_the_moment_count():
    """A step of more requests makes a token worth less."""
    outcomes = Outcomes(Typical())
    step = drafts(outcomes, 10, 3, 4)
    assert outcomes.expected(Prices(0.5, 0.25), step, COST) == pytest.approx(0.5)


def test_nothing_is_expected_of_a_request_that_nothing_is_known_of():
    assert Outcomes(Typical()).expected(PRICES, 1, COST) == 0.0


def test_a_new_request_is_expected_to_be_like_others():
    typical = Typical()
    drafts(Outcomes(typical), FIRST_DRAFTS, 2, 2)
    assert typical.is_known
    assert Outcomes(typical).expected(PRICES, 1, COST) == pytest.approx(typical.saved(PRICES)) == pytest.approx(1.5)


def test_a_few_drafts_of_its_own_move_the_expectation_and_many_make_it():
    typical = Typical()
    drafts(Outcomes(typical), FIRST_DRAFTS, 2, 2)
    own = Outcomes(typical)
    step = drafts(own, 2, 0, 2)
    assert 0.5 < own.expected(PRICES, step, COST) < 1.2
    step = drafts(own, 60, 0, 2, step)
    assert own.expected(PRICES, step, COST) < 0.0


def test_a_request_that_was_long_not_asked_is_expected_to_be_like_others_again():
    typical = Typical()
    own, other = Outcomes(typical), Outcomes(typical)
    step = drafts(other, FIRST_DRAFTS, 2, 2)
    step = drafts(own, 30, 0, 2, step)
    assert own.expected(PRICES, step, COST) < 0.0
    assert own.expected(PRICES, step + 1000, COST) == pytest.approx(typical.saved(PRICES), abs=0.01)


def test_a_request_that_is_drafted_for_long_does_not_make_what_is_typical():
    """It is drafted for because it is better than others."""
    typical = Typical()
    drafts(Outcomes(typical), 20, 0, 2)
    drafts(Outcomes(typical), 2000, 8, 8)
    assert typical.sums.drafts <= 20 + FIRST_DRAFTS
    assert typical.saved(PRICES) < 5.0


def test_what_is_taken_back_was_never_asked():
    typical = Typical()
    outcomes = Outcomes(typical)
    for step in range(1, 5):
        outcomes.asked(step)
        outcomes.take_back()
    assert outcomes.sums.drafts == typical.sums.drafts == outcomes.num_asked == 0


def test_requests_that_repeat_themselves_do_not_keep_the_others_going():
    typical = Typical()
    step = drafts(Outcomes(typical), FIRST_DRAFTS, 20, 20)
    own = Outcomes(typical)
    step = drafts(own, 12, 0, 1, step)
    assert typical.saved(PRICES) > 10 * COST
    assert own.expected(PRICES, step, COST) < COST
