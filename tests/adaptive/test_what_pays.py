"""How much of the drafts a step verifies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planning_cases import FLAT, LINEAR, chain, count, drafted_requests, planner, with_draft
from specserve.batch.drafts import first, paths_of
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import SpeculationParams
from specserve_adaptive.ranked import MIN_GAIN, RankedPlanner
from specserve_adaptive.step_costs import StepCosts


def test_nothing_is_verified_where_rows_cost_as_much_as_they_may_bring():
    assert planner(LINEAR).choose([with_draft(chain(0.3, 0.1))], 99, 1) == [None]


def test_everything_is_verified_where_more_rows_cost_nothing():
    draft = chain(0.3, 0.1, 0.01)
    assert planner(FLAT).choose([with_draft(draft)], 99, 1) == [len(draft.tokens)]


def test_a_gain_within_the_error_of_the_estimates_is_left_alone():
    assert planner(FLAT).choose([with_draft(chain(0.9 * MIN_GAIN))], 99, 1) == [None]


def test_one_request_may_speculate_however_many_others_do_not():
    others = [with_draft(None) for _ in range(200)]
    assert count(planner(FLAT).choose([with_draft(chain(0.5)), *others], 99, 201))[0] == 1


def test_a_draft_token_of_unknown_cost_is_expected_to_cost_more_than_its_row():
    unseen = RankedPlanner(32, StepCosts([1, 256], [1.0, 1.0]), "fair", ("s",))
    assert unseen.choose([with_draft(chain(0.12))], 99, 1) == [None]
    assert count(unseen.choose([with_draft(chain(0.9))], 99, 1)) == [1]


def test_draft_tokens_fill_a_plateau_of_the_costs_and_stop_at_its_edge():
    plateaus = ([1, 32, 33, 64], [1.0, 1.0, 3.0, 3.0])
    requests = [with_draft(chain(*[0.9**d for d in range(1, 17)])) for _ in range(4)]
    assert sum(count(planner(plateaus).choose(requests, 999, 4))) == 28


def test_the_likelier_draft_tokens_of_all_requests_go_first():
    requests = [with_draft(chain(0.9, 0.8)), with_draft(chain(0.2, 0.1)), with_draft(None)]
    assert count(planner().choose(requests, 2, 3)) == [2, 0, 0]
    assert count(planner().choose(requests, 3, 3)) == [2, 1, 0]


@given(requests=drafted_requests(), budget=st.integers(-3, 40), linear=st.booleans())
def test_a_choice_fits_the_budget_and_holds_every_ancestor(requests, budget, linear):
    chosen = planner(([1, 64], [1.0, 8.0]) if linear else FLAT).choose(requests, budget, len(requests))
    assert sum(count(chosen)) <= max(budget, 0)
    for request, choice in zip(requests, chosen, strict=True):
        draft = first(request.draft, choice) if isinstance(choice, int) else choice
        if draft is not None:
            # tokens are node numbers, so a path of tokens in the choice names a path of the proposal
            proposed = paths_of(request.draft)
            assert all(
                tuple(draft.tokens[n] for n in path) == proposed[draft.tokens[path[-1]]] for path in paths_of(draft)
            )


@given(requests=drafted_requests(), budget=st.integers(0, 40))
def test_a_fixed_width_takes_the_front_of_every_draft_as_far_as_the_budget_goes(requests, budget):
    chosen = count(FixedWidthPlanner(32).choose(requests, budget, len(requests)))
    assert sum(chosen) == min(budget, sum(len(r.draft.tokens) for r in requests if r.draft))


def test_one_request_may_not_be_slowed_down_for_its_neighbours_luck():
    """One of eight guesses well: 1.5 times the tokens in 1.3 times the time would be more per second."""
    requests = [with_draft(chain(*[0.99] * 4)), *(with_draft(None) for _ in range(7))]
    costs = ([1, 8, 9, 64], [1.0, 1.0, 1.3, 1.3])
    assert count(planner(costs).choose(requests, 99, 8)) == [0] * 8
    assert sum(count(planner(costs).choose([with_draft(chain(*[0.99] * 4)) for _ in range(8)], 99, 8))) == 32


@pytest.mark.parametrize("kind", [FixedWidthPlanner, lambda most: planner(max_draft_tokens=most)])
def test_limits_are_the_smaller_of_the_engines_and_the_requests(kind):
    wishes = (None, SpeculationParams(max_draft_tokens=3), SpeculationParams(max_draft_tokens=99),
              SpeculationParams(max_draft_tokens=0), SpeculationParams(enabled=False))  # fmt: skip
    requests = [with_draft(None, speculation=wish) for wish in wishes]
    assert kind(8).limits(requests) == [8, 3, 8, 0, 0]
    assert kind(8).limits([with_draft(None, max_tokens=1)]) == [0], "the last token comes as a bonus"


def test_a_first_draft_may_be_long_enough_for_an_answer_that_repeats_its_prompt():
    assert planner(max_draft_tokens=200).limits([with_draft(None, max_tokens=500)]) == [32]
