"""Which drafters hear of steps for which the planner wants no draft."""

from __future__ import annotations

import pytest

from specserve.protocols import Drafter, DrafterNeeds
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests


class Listener(Drafter):
    """Keeps the tokens that it hears of, and the limits that come with them; drafts nothing."""

    name = "listener"

    def __init__(self, **needs):
        self.needs = DrafterNeeds(**needs)
        self.heard, self.limits = {}, set()

    def start(self, request):
        self.heard[request.id] = []

    def propose(self, batch, output, verdict, limits):
        self.limits.update(limits)
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            self.heard[span.request.id] += decided.tokens
        return [None] * len(limits)


class Deaf(FixedWidthPlanner):
    """Wants no draft; nobody need ask it for `pause` steps."""

    def __init__(self, pause):
        super().__init__(0)
        self.pause, self.unasked = pause, 0

    def idle_steps(self):
        return self.pause

    def limits(self, requests):
        return [0] * len(requests)

    def observe_idle(self, batch, seconds):
        self.unasked += 1


@pytest.mark.parametrize("pause", [0, 8])
def test_a_drafter_that_hears_every_step_is_not_starved_by_the_planner(toy_model, pause):
    requests = varied_requests(12)
    listener = Listener(every_step=True)
    served = run_requests(make_engine(toy_model, listener, planner=Deaf(pause)).engine, requests)
    assert listener.heard == served.tokens() == plain_run(toy_model, requests).tokens()
    assert listener.limits == {0}


def test_another_is_called_only_when_a_draft_is_wanted(toy_model):
    request = toy_request("a", (1, 2, 3), max_tokens=8, ignore_eos=True)
    deaf, wanted = Listener(), Listener()
    run_requests(make_engine(toy_model, deaf, planner=Deaf(0)).engine, [request])
    assert deaf.heard == {"a": []}
    served = run_requests(make_engine(toy_model, wanted, planner=FixedWidthPlanner(4)).engine, [request])
    assert wanted.heard["a"] == served.tokens()["a"][:6]  # a draft after the seventh could not add one
    assert 4 in wanted.limits
