"""The planner in a running engine: what is verified and what is drafted, with good drafters and bad ones."""

from __future__ import annotations

import msgspec
import pytest

from planning_cases import planner
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import Draft
from specserve_workbench.testing.drafters import OracleDrafter, WrongDrafter
from specserve_workbench.testing.engines import plain_run, run
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request


@pytest.fixture(scope="module")
def served(toy_model):
    """Requests and their plain tokens."""
    requests = [toy_request(str(i), range(1, 20 + i), max_tokens=100, ignore_eos=True) for i in range(4)]
    return requests, run(toy_model, requests)


def rising():
    return planner(costs=([1, 4, 64], [1.0, 1.1, 4.0]))


def drafted(model, requests, drafter, chosen):
    outcome = run(model, requests, drafter, planner=chosen)
    return outcome, outcome.metrics.num_draft_tokens


def test_verifying_a_wrong_drafter_is_given_up(toy_model, served):
    requests, plain = served
    wrong = WrongDrafter(plain.tokens(), 4, TOY_VOCAB)
    outcome, verified = drafted(toy_model, requests, wrong, rising())
    _, all_of_them = drafted(toy_model, requests, wrong, FixedWidthPlanner(32))
    assert outcome.decided() == plain.decided()
    assert 0 < verified < all_of_them / 10


def test_verifying_an_oracle_goes_on(toy_model, served):
    requests, plain = served
    outcome, verified = drafted(toy_model, requests, OracleDrafter(plain.tokens(), 4), rising())
    _, all_of_them = drafted(toy_model, requests, OracleDrafter(plain.tokens(), 4), FixedWidthPlanner(32))
    assert outcome.decided() == plain.decided()
    assert all_of_them * 0.8 < verified == outcome.metrics.num_accepted_tokens
    assert outcome.metrics.num_steps < plain.metrics.num_steps / 3


def test_a_drafter_that_becomes_right_is_found_out_without_being_verified(toy_model):
    requests = [toy_request("a", range(1, 20), max_tokens=300, ignore_eos=True)]
    plain = plain_run(toy_model, requests)

    class LateOracle(OracleDrafter):
        def draft(self, request, limit):
            right = super().draft(request, limit)
            if request.num_generated > 50 or right is None:
                return right
            return Draft(tokens=tuple((t + 1) % TOY_VOCAB for t in right.tokens))

    outcome, _ = drafted(toy_model, requests, LateOracle(plain.tokens(), 4), rising())
    assert outcome.metrics.num_accepted_tokens > 50


def test_a_drafter_that_is_never_right_is_hardly_asked(toy_model, served):
    requests, plain = served
    asked = []

    class Counted(WrongDrafter):
        def draft(self, request, limit):
            asked.append(request.id)
            draft = super().draft(request, limit)
            return draft and msgspec.structs.replace(draft, survival=(0.5,) * len(draft.tokens))

    chosen = rising()
    learn = chosen.observe_drafting
    chosen.observe_drafting = lambda seconds, num_requests, pass_seconds: learn(0.05 * num_requests, num_requests, 0.0)
    outcome, _ = drafted(toy_model, requests, Counted(plain.tokens(), 4, TOY_VOCAB), chosen)
    assert outcome.decided() == plain.decided()
    assert len(asked) < sum(len(tokens) for tokens in plain.tokens().values()) / 3
    assert not any(chosen.request_stats(request.request_id) for request in requests), "all of them ended"
