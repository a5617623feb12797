"""One drafter knows what must come, another goes on from there: one chain, in one step, each scored by its own part."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from competing_cases import Clock, plugin

from specserve.batch.drafts import behind, continued
from specserve.engine.competing import Competition
from specserve.engine.proposals import Proposal, certain_tokens
from specserve.speculation.calibration import Calibration
from specserve.speculation.hit_history import HitHistory
from specserve.speculation.planning import VerifyAll
from specserve.types import Draft, SamplingParams
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests


class Knowing(OracleDrafter):
    """Certain of the next three tokens; `shift` makes them wrong."""

    name = "knowing"
    is_certain = True
    shift = 0

    def draft(self, request, limit):
        tokens = tuple((token + self.shift) % TOY_VOCAB for token in self.future(request)[: min(limit, 3)])
        return Draft(tokens=tokens, survival=(1.0,) * len(tokens)) if tokens else None


class Continuing(OracleDrafter):
    """Two tokens from behind those that are certain."""

    name = "continuing"

    def propose_behind(self, batch, output, verdict, limits, certain):
        drafts = []
        for span, limit, tokens in zip(batch.spans, limits, certain, strict=True):
            future = tuple(self.future(span.request)[len(tokens) :][: min(limit, 2)]) if limit else ()
            drafts.append(Draft(tokens=future, survival=(0.9,) * len(future)) if future else None)
        return drafts


def run_both(model, requests, knowing, continuing, limit=32):
    extra = {knowing.name: plugin(knowing, VerifyAll(limit)), continuing.name: plugin(continuing)}
    engine = make_engine(model, extra=extra).engine
    return engine, run_requests(engine, requests)


def test_a_step_verifies_what_is_certain_and_what_follows_it(toy_model, monkeypatch):
    Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=60, ignore_eos=True)]
    plain = run(toy_model, requests)
    expected = plain.tokens()
    _, outcome = run_both(toy_model, requests, Knowing(expected, 3), Continuing(expected, 2))
    assert outcome.decided() == plain.decided()
    steps = [len(delta.tokens) for delta in outcome.outputs["a"].steps]
    assert steps[1:-1] == [6] * len(steps[1:-1])  # three that are certain, two behind them, and the bonus
    assert outcome.metrics.num_accepted_tokens == outcome.metrics.num_draft_tokens
    for delta in outcome.outputs["a"].steps[1:-1]:
        assert list(delta.drafted_by) == [*["knowing"] * 3, *["continuing"] * 2, ""]


def test_each_drafter_is_scored_by_its_own_part(toy_model, monkeypatch):
    Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=60, ignore_eos=True)]
    expected = run(toy_model, requests).tokens()
    engine, _ = run_both(toy_model, requests, Knowing(expected, 3), Continuing(expected, 2))
    means = {guard.name: guard.hits.mean for guard in engine.drafting.guards}
    assert means["knowing"] == pytest.approx(3.0, abs=0.2)
    assert means["continuing"] == pytest.approx(2.0, abs=0.2)


def test_where_the_limit_is_used_up_nobody_goes_on(toy_model, monkeypatch):
    Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=40, ignore_eos=True)]
    expected = run(toy_model, requests).tokens()
    _, outcome = run_both(toy_model, requests, Knowing(expected, 3), Continuing(expected, 2), limit=3)
    assert outcome.tokens() == expected
    assert max(len(delta.tokens) for delta in outcome.outputs["a"].steps) == 4


def test_certainty_that_is_wrong_changes_no_token(toy_model):
    requests = varied_requests(20)
    plain = run(toy_model, requests)
    expected = plain.tokens()
    wrong = Knowing(expected, 3)
    wrong.shift = 1
    engine, outcome = run_both(toy_model, requests, wrong, Continuing(expected, 2))
    assert outcome.decided() == plain.decided()
    hits = {guard.name: guard.hits for guard in engine.drafting.guards}
    assert hits["knowing"].mean < 0.1
    assert hits["continuing"].num_scored == 0  # its part was never tried


@pytest.mark.parametrize("fault", ["raises", "too long", "too few"])
def test_a_fault_of_the_one_that_goes_on_costs_its_part_only(toy_model, fault):
    requests = varied_requests(12)
    plain = run(toy_model, requests)

    class Faulty(Continuing):
        def propose_behind(self, batch, output, verdict, limits, certain):
            if fault == "raises":
                raise OSError("gone")
            if fault == "too few":
                return []
            return [Draft(tokens=(1,) * (limit + 1)) for limit in limits]

    _, outcome = run_both(toy_model, requests, Knowing(plain.tokens(), 3), Faulty({}, 2))
    assert outcome.decided() == plain.decided()
    assert outcome.metrics.num_accepted_tokens > 0
    assert {name for name, _ in outcome.metrics.drafter_faults} == {"continuing"}


def test_a_tree_goes_on_behind_a_chain():
    tree = Draft(tokens=(5, 6, 7), parents=(-1, -1, 0), survival=(0.5, 0.4, 0.3), source="x")
    whole = continued((1, 2), tree)
    assert whole.tokens == (1, 2, 5, 6, 7)
    assert whole.parents == (-1, 0, 1, 1, 2)
    assert whole.survival == (1.0, 1.0, 0.5, 0.4, 0.3)
    assert behind(whole, 2) == tree
    chain = Draft(tokens=(5, 6), source="x")
    assert continued((1,), chain) == Draft(tokens=(1, 5, 6), source="x")
    assert behind(continued((1,), chain), 1) == chain


@pytest.mark.parametrize(
    ("draft", "certain"),
    [
        (Draft(tokens=(1, 2, 3), survival=(1.0, 1.0, 0.6)), (1, 2)),
        (Draft(tokens=(1, 2), survival=(1.0, 1.0)), (1, 2)),
        (Draft(tokens=(1, 2), survival=(0.9, 0.9)), ()),
        (Draft(tokens=(1, 2)), ()),
        (Draft(tokens=(1, 2, 3), parents=(-1, 0, 0), survival=(1.0, 1.0, 1.0)), (1, 2)),
    ],
)
def test_certain_tokens_are_the_leading_chain_that_must_come(draft, certain):
    assert certain_tokens(draft) == certain


def test_a_proposal_is_tried_once_all_that_is_certain_came():
    proposal = Proposal(SimpleNamespace(name="x"), Draft(tokens=(1, 2, 5)), 2)
    assert proposal.own == Draft(tokens=(5,))
    assert proposal.followers([1, 2]) is None
    assert proposal.followers([1, 9, 5]) is None
    assert list(proposal.followers([1, 2, 7])) == [7]


@pytest.mark.parametrize(("certain", "asked"), [((), [0]), (((1, 2, 3, 4, 5),), [4])])
def test_what_lies_behind_certain_tokens_is_worth_asking_for_though_these_are_right(certain, asked):
    """From the newest token on, two right tokens add nothing to five; behind these they add two."""
    competition = Competition(Calibration(), None, scores_all=True)
    competition.step_seconds = 1.0
    hits, request = HitHistory(), SimpleNamespace(id="a", params=SamplingParams())
    for _ in range(4):
        hits.add("a", 2.0, 2)
    guard = SimpleNamespace(seconds_per_draft=0.01, hits=hits)
    sure = Draft(tokens=(1, 2, 3, 4, 5), survival=(1.0,) * 5, source="knowing")
    for _ in range(200):
        competition.calibration.observe(sure, request, sure.tokens)
    batch = SimpleNamespace(spans=[SimpleNamespace(request=request)])
    found = [[Proposal(SimpleNamespace(name="knowing"), sure)]]
    assert competition.worth_asking(guard, batch, [4], found, certain) == asked
