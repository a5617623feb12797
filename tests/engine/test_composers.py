"""Which of several drafters propose, what becomes of their drafts, and a composer that breaks its contract."""

from __future__ import annotations

import msgspec
import pytest
from competing_cases import EveryoneProposes, composed_by, plugin

from specserve.attention.sdpa import SdpaFactory
from specserve.batch.drafts import is_chain
from specserve.batch.proposals import OpenDraft, Proposal
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.errors import PluginError
from specserve.hookspecs import hookimpl
from specserve.speculation.first_draft import FirstDraft
from specserve.types import Draft
from specserve_workbench.testing.drafters import OracleDrafter, WrongDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests


class ForSome(OracleDrafter):
    """Proposes for every second request."""

    name = "some"

    def draft(self, request, limit):
        return super().draft(request, limit) if int(request.id) % 2 else None


def together(model, requests, *drafters, composer=None, **options):
    planner = composed_by(composer)
    extra = {drafter.name: plugin(drafter, planner if drafter is drafters[0] else None) for drafter in drafters}
    return run_requests(make_engine(model, extra=extra | options.pop("extra", {}), **options).engine, requests)


def test_without_a_composer_each_request_has_the_first_drafters_draft_that_proposes_one(toy_model):
    requests = [toy_request(str(i), range(1, 9 + i), max_tokens=40, ignore_eos=True) for i in range(4)]
    plain = plain_run(toy_model, requests)
    outcome = together(toy_model, requests, ForSome(plain.tokens(), 2), OracleDrafter(plain.tokens(), 5))
    assert outcome.decided() == plain.decided()
    for request_id, output in outcome.outputs.items():
        name, width = ("some", 2) if int(request_id) % 2 else ("oracle", 5)
        assert {len(step.tokens) for step in output.steps[1:-1]} == {width + 1}
        assert {*output.steps[1].drafted_by} == {name, ""}


FORCED, GUESSED = Draft(tokens=(1, 2), survival=(1.0, 1.0)), Draft(tokens=(1, 2, 7, 8))
AFTER, OTHER = Proposal("ngram", GUESSED, 2), Proposal("eagle", Draft(tokens=(9,)))


@pytest.mark.parametrize(
    ("proposals", "tokens", "sources"),
    [
        ([OTHER], (9,), None),
        ([Proposal("grammar", FORCED)], (1, 2), None),
        ([Proposal("grammar", FORCED), AFTER, OTHER], (1, 2, 7, 8), ("grammar", "grammar", "ngram", "ngram")),
        ([OTHER, Proposal("late", Draft(tokens=(3,)))], (9,), None),
    ],
)
def test_a_draft_that_goes_on_after_forced_tokens_is_taken(proposals, tokens, sources):
    draft = FirstDraft().combine(None, proposals, 8)
    assert (draft.tokens, draft.sources) == (tokens, sources)


@pytest.mark.parametrize(
    ("proposals", "num_forced", "limit"),
    [
        ([], 0, 4),
        ([Proposal("grammar", FORCED)], 2, 4),
        ([Proposal("grammar", FORCED)], 0, 0),
        ([Proposal("grammar", FORCED), AFTER], 2, 0),
        ([OTHER], 0, 0),
    ],
)
def test_a_drafter_proposes_where_none_before_it_did_from_there(proposals, num_forced, limit):
    assert FirstDraft().limits("late", [OpenDraft(None, 4, proposals, num_forced)]) == [limit]


RUBBISH = {
    "draft_order": [None, [], ["oracle"], ["oracle", "oracle"], 3],
    "limits": [None, [], [10**6], [-1], ["many"], [True] * 99],
    "combine": [
        3,
        Draft(tokens=()),
        Draft(tokens=(10**6,)),
        Draft(tokens=(1,) * 99),
        Draft(tokens=(1, 1), parents=(-1, -1), source="oracle"),
        Draft(tokens=(1,), source="somebody"),
        Draft(tokens=(1, 2), source="oracle", sources=("oracle",)),
    ],
}


@pytest.mark.parametrize(("method", "answer"), [(name, each) for name, answers in RUBBISH.items() for each in answers])
def test_a_composer_that_answers_rubbish_costs_its_choice_and_no_token(toy_model, method, answer):
    composer = FirstDraft()
    setattr(composer, method, lambda *_: answer)
    found_as_without(toy_model, composer)


@pytest.mark.parametrize("method", ["draft_order", "limits", "combine", "observe", "observe_cost", "stop"])
def test_a_composer_that_raises_costs_its_choice_and_no_token(toy_model, method):
    def raises(*_):
        raise OSError("gone")

    composer = FirstDraft()
    setattr(composer, method, raises)
    found_as_without(toy_model, composer)


def found_as_without(toy_model, composer):
    """The first drafts of the requests are taken, and the fault is counted."""
    requests = varied_requests(8)
    plain = plain_run(toy_model, requests)
    drafters = OracleDrafter(plain.tokens(), 3), WrongDrafter(plain.tokens(), 2, TOY_VOCAB)
    outcome = together(toy_model, requests, *drafters, composer=composer, fault_limit=10**6)
    without = together(toy_model, requests, *drafters)
    assert outcome.decided() == plain.decided()
    assert outcome.metrics.num_accepted_tokens == without.metrics.num_accepted_tokens > 20
    assert {(plugin, part) for plugin, part, _ in outcome.metrics.faults.counts} == {
        ("oracle", "choice among drafters")
    }


def test_an_object_that_is_no_composer_is_refused(toy_model):
    with pytest.raises(PluginError, match=r"oracle has a planner with a composer.* does not extend specserve\.api"):
        together(toy_model, [], OracleDrafter({}, 1), WrongDrafter({}, 1, TOY_VOCAB), composer=object())


class Chains(SdpaFactory):
    """Cannot keep siblings apart, and says so."""

    name = "chains"
    capabilities = msgspec.structs.replace(SdpaFactory.capabilities, tree_mask=False)


class ChainsPlugin:
    @hookimpl
    def attention_backends(self):
        return [Chains()]


class Branches(EveryoneProposes):
    """Both drafts as siblings: a tree of two chains."""

    def combine(self, request, proposals, limit):
        if len(proposals) < 2:
            return proposals[0].draft
        (one, other) = (proposal.draft.tokens for proposal in proposals)
        if one[0] == other[0] or len(one) + len(other) > limit:
            return proposals[0].draft
        parents = (*range(-1, len(one) - 1), -1, *range(len(one), len(one) + len(other) - 1))
        names = [proposal.drafter for proposal in proposals]
        sources = (names[0],) * len(one) + (names[1],) * len(other)
        return Draft(tokens=one + other, parents=parents, source="+".join(names), sources=sources)


@pytest.mark.parametrize("attention", ["sdpa", "chains"])
def test_drafts_of_chain_drafters_that_are_combined_to_a_tree_are_cut_where_attention_has_no_masks(
    toy_model, attention, monkeypatch
):
    declared = PluginDeclaration(name="guest", provides={"attention.backend": "a test's"})
    requests = [toy_request(str(i), range(1, 9 + i), max_tokens=40, ignore_eos=True) for i in range(3)]
    plain = plain_run(toy_model, requests)
    wrong, right = WrongDrafter(plain.tokens(), 2, TOY_VOCAB), OracleDrafter(plain.tokens(), 3)
    chosen = []
    choose = composed_by(None).__class__.choose
    monkeypatch.setattr(
        "specserve.speculation.fixed_width.FixedWidthPlanner.choose",
        lambda self, *given: chosen.extend(found := choose(self, *given)) or found,
    )
    outcome = together(
        toy_model, requests, wrong, right, composer=Branches(), attention=attention, allow_undeclared=True,
        extra={"guest": InProcessPlugin(ChainsPlugin(), declared)},
    )  # fmt: skip
    assert outcome.decided() == plain.decided()
    assert not outcome.metrics.faults.counts
    assert all(map(is_chain, chosen)) == (attention == "chains")
    assert (outcome.metrics.num_accepted_tokens > 50) == (attention == "sdpa"), "the wrong chain comes first"
