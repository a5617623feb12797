"""Which drafter proposed an accepted draft token: in the outputs and in the counters."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.engine.commit import drafters_of
from specserve.guards.draft_checks import check_draft
from specserve.guards.planner import attribute
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import Draft
from specserve_adaptive._native import Planner
from specserve_adaptive.competition import Competition
from specserve_workbench.testing.drafters import DrafterPlugin, NoisyDrafter, OracleDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests

MERGED = Draft(tokens=(7, 8, 9), parents=(-1, -1, 1), source="one+two", sources=("one", "two", "one"))


HEADS = [bool(toss) for toss in np.random.default_rng(0).integers(2, size=120)]


class HalfRight(OracleDrafter):
    """Chains that are right at the tokens for which the coin fell on the drafter's side, and wrong at the others."""

    def __init__(self, name, outputs, side):
        super().__init__(outputs, 4)
        self.name, self.side = name, side

    def draft(self, request, limit):
        right = super().draft(request, limit)
        sides = HEADS[request.num_generated :]
        return right and Draft(
            tokens=tuple((t + (s != self.side)) % TOY_VOCAB for t, s in zip(right.tokens, sides, strict=False))
        )


class RebuildingPlanner(FixedWidthPlanner):
    """Chooses drafts that it makes itself, of the same nodes."""

    def choose(self, requests, budget, base_rows):
        chosen = super().choose(requests, budget, base_rows)
        return [d and Draft(tokens=d.tokens, parents=d.parents, source="planner") for d in chosen]


def run_together(model, requests, *drafters, planner=None):
    extra = {}
    for drafter in drafters:
        declaration = PluginDeclaration(
            name=drafter.name,
            provides={"draft.tree": "a test's drafter"},
            compatible={"draft.tree": "drafts are merged"},
        )
        extra[drafter.name] = InProcessPlugin(DrafterPlugin(lambda d=drafter: d, planner), declaration)
        planner = None
    return run_requests(make_engine(model, extra=extra).engine, requests)


def tokens_by_drafter(outcome):
    """Counted from the outputs; the target's own tokens under the empty name."""
    steps = [step for output in outcome.outputs.values() for step in output.steps]
    assert all(len(step.drafted_by) == len(step.tokens) for step in steps)
    assert all(step.accepted == tuple(map(bool, step.drafted_by)) for step in steps)
    return Counter(name for step in steps for name in step.drafted_by)


def test_accepted_tokens_of_the_only_drafter_have_its_name(toy_model):
    requests = varied_requests(12)
    expected = plain_run(toy_model, requests).tokens()
    outcome = run(toy_model, requests, NoisyDrafter(expected, p=0.7, max_width=6, vocab_size=TOY_VOCAB))
    found, metrics = tokens_by_drafter(outcome), outcome.metrics
    assert found["noisy"] == metrics.num_accepted_tokens > 0
    assert set(found) == {"noisy", ""}
    assert metrics.accepted_tokens_by_drafter == {"noisy": metrics.num_accepted_tokens}
    assert metrics.draft_tokens_by_drafter == {"noisy": metrics.num_draft_tokens}


def test_without_a_drafter_every_token_is_the_targets(toy_model):
    outcome = run(toy_model, varied_requests(4))
    assert set(tokens_by_drafter(outcome)) == {""}
    assert not outcome.metrics.draft_tokens_by_drafter


@pytest.mark.parametrize("planned", [FixedWidthPlanner, RebuildingPlanner], ids=["verify all", "rebuilding"])
def test_each_token_of_a_merged_draft_is_from_the_drafter_that_was_right(toy_model, planned):
    planner = planned(32)
    planner.composer = Competition(Planner("fair", 0.0), None, scores_all=True)
    requests = [toy_request(str(i), range(1, 9 + i), max_tokens=120, ignore_eos=True) for i in range(3)]
    expected = plain_run(toy_model, requests).tokens()
    drafters = (HalfRight("heads", expected, side=True), HalfRight("tails", expected, side=False))
    outcome = run_together(toy_model, requests, *drafters, planner=planner)
    assert outcome.tokens() == expected
    for output in outcome.outputs.values():
        names = [name for step in output.steps for name in step.drafted_by]
        assert all(name in ("", "heads" if side else "tails") for name, side in zip(names, HEADS, strict=True))
    found, metrics = tokens_by_drafter(outcome), outcome.metrics
    assert min(found["heads"], found["tails"]) > 20
    assert metrics.accepted_tokens_by_drafter == {"heads": found["heads"], "tails": found["tails"]}
    assert metrics.draft_tokens_by_drafter.total() == metrics.num_draft_tokens


def test_a_drafter_cannot_take_anothers_name(toy_model):
    class Impostor(OracleDrafter):
        name = "impostor"

        def draft(self, request, limit):
            tokens = tuple(self.future(request)[:2][:limit])
            return Draft(tokens=tokens, source="ngram", sources=("ngram",) * len(tokens)) if tokens else None

    request = toy_request("a", range(1, 9), max_tokens=20, ignore_eos=True)
    outcome = run(toy_model, [request], Impostor(run(toy_model, [request]).tokens(), 2))
    assert set(tokens_by_drafter(outcome)) == {"impostor", ""}
    assert set(outcome.metrics.draft_tokens_by_drafter) == {"impostor"}


@pytest.mark.parametrize("sources", [("x",), ("x", "y"), 7, (1, None), "xy"], ids=str)
def test_what_a_drafter_says_of_each_token_is_left_out(sources):
    clean = check_draft(Draft(tokens=(1, 2), source="s", sources=sources), 5, TOY_VOCAB)
    assert clean == Draft(tokens=(1, 2), source="s")


def test_names_follow_the_accepted_path_and_end_with_the_targets_own_tokens():
    assert drafters_of(MERGED, (1, 2), 3) == ("two", "one", "")
    assert drafters_of(MERGED, (1, 2), 2) == ("two", "one")
    assert drafters_of(MERGED, (), 1) == drafters_of(None, (), 1) == ("",)
    assert drafters_of(Draft(tokens=(7, 8), source="one"), (0,), 2) == ("one", "")


def test_a_planners_own_draft_is_attributed_token_by_token():
    chosen = Draft(tokens=(8, 5, 9, 9), parents=(-1, -1, 0, 1), source="one")
    assert attribute(chosen, MERGED, "planner").sources == ("two", "planner", "one", "planner")
    assert attribute(chosen, None, "planner") == Draft(tokens=(8, 5, 9, 9), parents=(-1, -1, 0, 1), source="planner")
    part = attribute(Draft(tokens=(8,), source="planner"), MERGED, "planner")
    assert (part.source, part.sources) == ("two", None)
