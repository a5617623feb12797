"""A request may name the drafters that propose for it: no other does, its tokens stay, and others keep theirs."""

from __future__ import annotations

import msgspec
import pytest
from competing_cases import Continuing, EveryoneProposes, Knowing, composed_by, plugin

from specserve.engine.admission import EngineLimits, check_request
from specserve.errors import RequestError
from specserve.types import SpeculationParams
from specserve_workbench.testing.drafters import OracleDrafter, WrongDrafter
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.engines import plain_run as run_plainly
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests, without_drafts

LIMITS = EngineLimits(vocab_size=320, max_model_len=100, cache_tokens=80, drafters=("oracle", "wrong"))


class Listening(OracleDrafter):
    """Notes for which requests it was asked."""

    def __init__(self, script, width, name):
        super().__init__(script, width)
        self.name, self.asked = name, set()

    def propose(self, batch, output, verdict, limits):
        pairs = zip(batch.spans, limits, strict=True)
        self.asked |= {span.request.id for span, limit in pairs if limit}
        return super().propose(batch, output, verdict, limits)


def plain_run(model, requests):
    return run_plainly(model, without_drafts(requests))


def only(*names, **fields):
    return SpeculationParams(drafters=names, **fields)


def served(model, requests, *drafters, composer=None, **options):
    planner = composed_by(composer)
    extra = {drafter.name: plugin(drafter, planner if drafter is drafters[0] else None) for drafter in drafters}
    return run_requests(make_engine(model, extra=extra, **options).engine, requests)


REQUESTS = [
    toy_request(name, range(1, 20 + i), max_tokens=24, ignore_eos=True, speculation=wish)
    for i, (name, wish) in enumerate({
        "all": SpeculationParams(),
        "first": only("first"),
        "second": only("second"),
        "both": only("second", "first"),
        "none": only(),
    }.items())
]  # fmt: skip


@pytest.mark.parametrize("composer", [None, EveryoneProposes()], ids=["first draft", "everyone"])
def test_only_the_named_drafters_are_asked_and_have_draft_tokens(toy_model, composer):
    plain = plain_run(toy_model, REQUESTS)
    first, second = (Listening(plain.tokens(), width, name) for width, name in ((2, "first"), (3, "second")))
    outcome = served(toy_model, REQUESTS, first, second, composer=composer)
    assert outcome.decided() == plain.decided()
    assert first.asked == {"all", "first", "both"}
    assert second.asked == {"second"} | ({"all", "both"} if composer else set())
    drafted = {name: {*output.steps[-1].stats.by_drafter} for name, output in outcome.outputs.items()}
    taken = {"first", "second"} if composer else {"first"}  # the longest, or the first one's
    assert drafted == {"all": taken, "first": {"first"}, "second": {"second"}, "both": taken, "none": set()}


def test_a_drafter_that_nobody_allows_is_not_asked_at_all(toy_model):
    requests = [msgspec.structs.replace(each, speculation=only("first")) for each in REQUESTS]
    plain = plain_run(toy_model, requests)
    first, second = (Listening(plain.tokens(), 2, name) for name in ("first", "second"))
    served(toy_model, requests, first, second)
    assert first.asked == {each.request_id for each in requests}
    assert not second.asked


def test_each_request_with_drafters_of_its_own_gives_the_same_tokens(toy_model):
    wishes = [None, only("oracle"), only("wrong"), only("wrong", "oracle"), only("oracle", max_draft_tokens=1), only()]
    requests = [
        msgspec.structs.replace(each, speculation=wishes[i % len(wishes)] or SpeculationParams())
        for i, each in enumerate(varied_requests(24))
    ]
    plain = plain_run(toy_model, requests)
    drafters = OracleDrafter(plain.tokens(), 4), WrongDrafter(plain.tokens(), 3, TOY_VOCAB)
    outcome = served(toy_model, requests, *drafters, composer=EveryoneProposes(), max_num_seqs=8)
    assert outcome.decided() == plain.decided()
    for i, request in enumerate(requests):
        stats = outcome.outputs[request.request_id].steps[-1].stats
        allowed = request.speculation.drafters
        assert allowed is None or {*stats.by_drafter} <= {*allowed}, i


def test_without_the_drafter_that_knows_what_must_come_nobody_goes_on_from_there(toy_model):
    request = toy_request("r", range(1, 20), max_tokens=24, ignore_eos=True)
    plain = plain_run(toy_model, [request])
    for wish, sources in ((None, {"knowing", "continuing"}), (only("continuing"), {"continuing"})):
        asking = msgspec.structs.replace(request, speculation=wish or SpeculationParams())
        outcome = served(toy_model, [asking], Knowing(plain.tokens(), 3), Continuing(plain.tokens(), 2))
        assert outcome.decided() == plain.decided()
        assert {*outcome.outputs["r"].steps[-1].stats.by_drafter} == sources


def test_the_reason_for_no_draft_names_the_drafters_that_were_allowed(toy_model):
    def reason(wish, width):
        request = msgspec.structs.replace(REQUESTS[0], speculation=msgspec.structs.replace(wish, return_steps=True))
        drafters = Listening({"all": ()}, 2, "first"), Listening({"all": range(99)}, width, "second")
        outcome = served(toy_model, [request], *drafters)
        return outcome.outputs["all"].steps[1].steps[0].reason

    assert reason(SpeculationParams(), 0) == "no draft came from first, second"
    assert reason(only("first"), 2) == "no draft came from first"
    assert reason(only(), 2) == "the request switches speculation off"


def test_when_all_that_a_request_allows_are_switched_off_it_is_told(toy_model):
    class Broken(Listening):
        def propose(self, batch, output, verdict, limits):
            raise OSError("gone")

    request = msgspec.structs.replace(REQUESTS[0], speculation=only("first", return_steps=True))
    plain = plain_run(toy_model, [request])
    drafters = Broken({}, 2, "first"), Listening(plain.tokens(), 2, "second")
    outcome = served(toy_model, [request], *drafters, draft_fault_limit=1)
    assert outcome.decided() == plain.decided()
    told = [step.reason for output in outcome.outputs["all"].steps for step in output.steps]
    assert "every drafter that the request allows is switched off after faults" in told
    assert not drafters[1].asked


@pytest.mark.parametrize(
    ("names", "served", "message"),
    [
        (("oracle", "orcale"), ("wrong", "oracle"), "must name drafters of this server, which are oracle, wrong; got"),
        (("x" * 999,), ("oracle",), "x'."),
        (("ngram",), (), "this server has no drafter; got 'ngram'. Leave it out, or start it with one, such as"),
    ],
)
def test_an_unknown_drafter_is_refused_with_those_that_are_served(names, served, message):
    request = toy_request("r", [1], speculation=only(*names))
    with pytest.raises(RequestError) as refusal:
        check_request(request, LIMITS._replace(drafters=served))
    assert message in str(refusal.value)
    assert len(str(refusal.value)) < 400
    assert (refusal.value.param, refusal.value.status) == ("speculation.drafters", 400)


def test_known_drafters_none_and_no_list_are_taken(toy_model):
    engine = make_engine(toy_model, OracleDrafter({}, 2)).engine
    for wish in (only("oracle"), only("oracle", "oracle"), only(), SpeculationParams()):
        engine.check(toy_request("r", [1], speculation=wish))
    with pytest.raises(RequestError, match="which are oracle; got 'wrong'"):
        engine.check(toy_request("r", [1], speculation=only("wrong")))
