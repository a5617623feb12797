"""One drafter knows what must come, another goes on from there: one chain, in one step."""

from __future__ import annotations

import pytest
from competing_cases import Clock, Continuing, Knowing, plugin

from specserve.batch.drafts import after, continued
from specserve.batch.proposals import Proposal, forced_tokens
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import Draft
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests


def run_both(model, requests, knowing, continuing, limit=32):
    extra = {knowing.name: plugin(knowing, FixedWidthPlanner(limit)), continuing.name: plugin(continuing)}
    engine = make_engine(model, extra=extra).engine
    return engine, run_requests(engine, requests)


def test_a_step_verifies_what_is_forced_and_what_follows_it(toy_model, monkeypatch):
    Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=60, ignore_eos=True)]
    plain = plain_run(toy_model, requests)
    expected = plain.tokens()
    _, outcome = run_both(toy_model, requests, Knowing(expected, 3), Continuing(expected, 2))
    assert outcome.decided() == plain.decided()
    steps = [len(delta.tokens) for delta in outcome.outputs["a"].steps]
    assert steps[1:-1] == [6] * len(steps[1:-1])  # three that are forced, two after them, and the bonus
    assert outcome.metrics.num_accepted_tokens == outcome.metrics.num_draft_tokens
    for delta in outcome.outputs["a"].steps[1:-1]:
        assert list(delta.drafted_by) == [*["knowing"] * 3, *["continuing"] * 2, ""]


def test_where_the_limit_is_used_up_nobody_goes_on(toy_model, monkeypatch):
    Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=40, ignore_eos=True)]
    expected = plain_run(toy_model, requests).tokens()
    _, outcome = run_both(toy_model, requests, Knowing(expected, 3), Continuing(expected, 2), limit=3)
    assert outcome.tokens() == expected
    assert max(len(delta.tokens) for delta in outcome.outputs["a"].steps) == 4


def test_forced_tokens_that_are_wrong_change_no_token(toy_model):
    requests = varied_requests(20)
    plain = plain_run(toy_model, requests)
    expected = plain.tokens()
    wrong = Knowing(expected, 3)
    wrong.shift = 1
    _, outcome = run_both(toy_model, requests, wrong, Continuing(expected, 2))
    assert outcome.decided() == plain.decided()


@pytest.mark.parametrize("fault", ["raises", "too long", "too few"])
def test_a_fault_of_the_one_that_goes_on_costs_its_part_only(toy_model, fault):
    requests = varied_requests(12)
    plain = plain_run(toy_model, requests)

    class Faulty(Continuing):
        def propose_after(self, batch, output, verdict, limits, forced):
            if fault == "raises":
                raise OSError("gone")
            if fault == "too few":
                return []
            return [Draft(tokens=(1,) * (limit + 1)) for limit in limits]

    _, outcome = run_both(toy_model, requests, Knowing(plain.tokens(), 3), Faulty({}, 2))
    assert outcome.decided() == plain.decided()
    assert outcome.metrics.num_accepted_tokens > 0
    assert {name for name, _ in outcome.metrics.drafter_faults} == {"continuing"}


def test_a_tree_goes_on_after_a_chain():
    tree = Draft(tokens=(5, 6, 7), parents=(-1, -1, 0), survival=(0.5, 0.4, 0.3), source="x")
    whole = continued((1, 2), tree)
    assert whole.tokens == (1, 2, 5, 6, 7)
    assert whole.parents == (-1, 0, 1, 1, 2)
    assert whole.survival == (1.0, 1.0, 0.5, 0.4, 0.3)
    assert after(whole, 2) == tree
    chain = Draft(tokens=(5, 6), source="x")
    assert continued((1,), chain) == Draft(tokens=(1, 5, 6), source="x")
    assert after(continued((1,), chain), 1) == chain


@pytest.mark.parametrize(
    ("draft", "forced"),
    [
        (Draft(tokens=(1, 2, 3), survival=(1.0, 1.0, 0.6)), (1, 2)),
        (Draft(tokens=(1, 2), survival=(1.0, 1.0)), (1, 2)),
        (Draft(tokens=(1, 2), survival=(0.9, 0.9)), ()),
        (Draft(tokens=(1, 2)), ()),
        (Draft(tokens=(1, 2, 3), parents=(-1, 0, 0), survival=(1.0, 1.0, 1.0)), (1, 2)),
    ],
)
def test_forced_tokens_are_the_leading_chain_that_must_come(draft, forced):
    assert forced_tokens(draft) == forced


def test_a_proposal_is_tried_once_all_forced_tokens_came():
    proposal = Proposal("x", Draft(tokens=(1, 2, 5)), 2)
    assert proposal.own == Draft(tokens=(5,))
    assert proposal.followers([1, 2]) is None
    assert proposal.followers([1, 9, 5]) is None
    assert list(proposal.followers([1, 2, 7])) == [7]
