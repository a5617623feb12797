"""The choice against brute force over all choices, for every objective, where survival and cost are known."""

from __future__ import annotations

import math
from array import array
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planning_cases import chain, drafted_requests, with_draft
from specserve.batch.drafts import ROOT, parents_of
from specserve.types import Draft
from specserve_adaptive._native import MOST_SLOWDOWN, Planner
from specserve_adaptive.ranked import FIRST_PRICES, RankedPlanner, cut
from specserve_adaptive.step_costs import StepCosts


def fair(expected, seconds):
    return sum(math.log(each / seconds) for each in expected)


def throughput(expected, seconds):
    return len(expected) * math.log(sum(expected) / seconds)


def latency(expected, seconds):
    return len(expected) * math.log(min(expected) / seconds)


OBJECTIVES = {"fair": fair, "throughput": throughput, "latency": latency}


def believed(draft, request):
    """Of a planner that has seen nothing, what is stated, as good as."""
    return Planner("fair", 0.0).survival(draft, request)


def all_choices(draft):
    """Every set of nodes that holds the ancestors of its nodes."""
    parents = parents_of(draft)
    for picked in product((False, True), repeat=len(parents)):
        if all(not yes or parent == ROOT or picked[parent] for yes, parent in zip(picked, parents, strict=True)):
            yield [node for node, yes in enumerate(picked) if yes]


@pytest.mark.parametrize("objective", OBJECTIVES)
@given(requests=drafted_requests(), slope=st.floats(0.0, 0.5))
def test_no_other_choice_is_better(objective, requests, slope):
    requests = requests[:2]
    survivals = [believed(r.draft, r) if r.draft else [] for r in requests]
    total = sum(map(len, survivals))
    seconds = array("d", [1.0 + slope * n for n in range(total + 1)])
    chosen = Planner(objective, 0.0).choose(requests, seconds, total)
    nodes = [[] if each is None else list(range(each)) if isinstance(each, int) else each for each in chosen]

    def value(choice):
        expected = [1 + sum(own[n] for n in picked) for own, picked in zip(survivals, choice, strict=True)]
        return OBJECTIVES[objective](expected, seconds[sum(map(len, choice))])

    options = [list(all_choices(r.draft)) if r.draft else [[]] for r in requests]
    allowed = (c for c in product(*options) if seconds[sum(map(len, c))] <= MOST_SLOWDOWN * seconds[0])
    assert value(nodes) >= max(map(value, allowed)) - 1e-4


def test_where_more_rows_cost_nothing_all_that_may_help_is_verified():
    request = with_draft(chain(0.9, 0.5, 0.2))
    for objective in OBJECTIVES:
        assert Planner(objective, 0.0).choose([request], array("d", [1.0] * 4), 9) == [3]


def test_the_slowest_request_alone_decides_for_latency():
    """The second has no draft: any draft token of the first one makes it wait."""
    requests = [with_draft(chain(0.99, 0.98), name="a"), with_draft(None, name="b")]
    seconds = array("d", [1.0, 1.1, 1.2])
    assert Planner("latency", 0.0).choose(requests, seconds, 2) == [None, None]
    assert Planner("fair", 0.0).choose(requests, seconds, 2) == [2, None]


def test_a_choice_within_a_tree_is_named_by_its_nodes_and_cut_out():
    tree = Draft(tokens=(5, 6, 7), parents=(-1, -1, 1), survival=(0.1, 0.8, 0.7), source="s")
    request = with_draft(tree)
    (nodes,) = Planner("fair", 0.0).choose([request], array("d", [1.0, 1.2, 1.4, 1.6]), 3)
    assert nodes == [1, 2]
    assert cut(tree, nodes) == Draft(tokens=(6, 7), parents=(-1, 0), survival=(0.8, 0.7), source="s")


def test_one_draft_token_more_than_pays_is_verified_now_and_then():
    planner, request = Planner("fair", 0.0), with_draft(chain(0.9, 0.01))
    seconds = array("d", [1.0, 1.2, 1.4])
    widths = [planner.choose([request], seconds, 2)[0] for _ in range(64)]
    assert widths.count(2) == 2
    assert widths.count(1) == 62


def test_a_step_without_room_verifies_nothing():
    planner = RankedPlanner(8, StepCosts([1, 8], [1.0, 1.0]))
    assert planner.choose([with_draft(chain(0.9))], 0, 512) == [None]


@pytest.mark.parametrize(("seconds", "message"), [(array("d"), "plain step"), (array("i", [1]), "incompatible")])
def test_rubbish_is_refused(seconds, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Planner("fair", 0.0).choose([with_draft(None)], seconds, 1)


def test_an_unknown_objective_is_refused():
    with pytest.raises(ValueError, match="objective must be fair, throughput or latency; got 'best'"):
        Planner("best", 0.0)


@pytest.mark.parametrize(("of_token", "num_prices"), [(0.001, 1 + 400), (0.05, 1 + FIRST_PRICES)])
def test_as_many_draft_tokens_are_priced_as_there_are_unless_steps_get_too_long(of_token, num_prices):
    """Those beyond could not be verified: the choice is the one with all prices."""
    costs = StepCosts([1, 4, 2004], [0.001, 1.0, 1.0 + 2000 * of_token])
    planner = RankedPlanner(100, costs, "throughput", ("simulated",))
    requests = [with_draft(chain(*[0.999] * 100)) for _ in range(4)]
    curve = planner.curve(4, requests, 2000)
    assert len(curve) == num_prices
    everything = array("d", costs.by_draft_tokens(4, 4, 400))
    assert curve == everything[:num_prices]
    chosen = Planner("throughput", 0.0).choose(requests, everything, 400)
    assert Planner("throughput", 0.0).choose(requests, curve, num_prices - 1) == chosen
    assert any(chosen)


def test_no_more_is_priced_than_the_budget_allows():
    planner = RankedPlanner(100, StepCosts([1, 4, 2004], [0.001, 1.0, 1.2]), "fair", ("simulated",))
    requests = [with_draft(chain(*[0.999] * 100)) for _ in range(4)]
    assert len(planner.curve(4, requests, 300)) == 1 + 300
    assert len(planner.curve(5, requests, 7)) == 1 + 16
    assert sum(width or 0 for width in planner.choose(requests, 7, 4)) == 7


def test_no_more_is_priced_than_the_requests_can_have():
    planner = RankedPlanner(32, StepCosts([1, 2004], [1.0, 1.2]), "fair", ("simulated",))
    for count in (1, 4):
        requests = [with_draft(chain(*[0.999] * 32)) for _ in range(count)]
        assert len(planner.curve(count, requests, 500)) == 1 + 32 * count
