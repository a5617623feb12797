"""A drafter that breaks its contract costs speculation, never a request."""

from __future__ import annotations

import math

import msgspec
import pytest

from specserve.declare import InProcessPlugin
from specserve.errors import PluginError
from specserve.protocols import Drafter, DrafterNeeds
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import Draft
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import drafter_plugin, make_engine, plain_run, run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests

FAULTS = {
    "raised ZeroDivisionError": lambda n: 1 / 0,
    "wrong number of drafts": lambda n: [None] * (n + 1),
    "no list of drafts": lambda n: None,
    "not a Draft": lambda n: [(1, 2)] * n,
    "source is not text": lambda n: [Draft(tokens=(1,), source=["x"])] * n,
    "token out of range": lambda n: [Draft(tokens=(5, 10**6))] * n,
    "tokens is not one-dimensional": lambda n: [Draft(tokens=3)] * n,
    "a parent does not precede its child": lambda n: [Draft(tokens=(1, 2), parents=(1, 0))] * n,
    "parents of another length than tokens": lambda n: [Draft(tokens=(1, 2), parents=(-1,))] * n,
    "survival outside 0..1": lambda n: [Draft(tokens=(1,), survival=(math.nan,))] * n,
    "survival of another length than tokens": lambda n: [Draft(tokens=(1,), survival=())] * n,
    "more tokens than the limit": lambda n: [Draft(tokens=(1,) * 1000)] * n,
}


class FaultyDrafter(Drafter):
    name = "faulty"

    def __init__(self, answer):
        self.answer = answer

    def propose(self, batch, output, verdict, limits):
        answer = self.answer(len(batch.spans))
        if answer is None:
            return None
        wanted = [a if i >= len(limits) or limits[i] else None for i, a in enumerate(answer)]
        return wanted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("reason", FAULTS)
def test_a_fault_is_counted_and_the_tokens_are_the_plain_ones(toy_model, reason):
    requests = varied_requests(8)
    faulty = run(toy_model, requests, FaultyDrafter(FAULTS[reason]))
    assert faulty.decided() == plain_run(toy_model, requests).decided()
    assert set(faulty.metrics.drafter_faults) == {("faulty", reason)}
    assert faulty.metrics.drafters_disabled == {"faulty"}


def test_a_drafter_that_recovers_in_time_stays_on(toy_model):
    requests = varied_requests(8)
    expected = plain_run(toy_model, requests).tokens()

    class Shaky(OracleDrafter):
        calls = 0

        def propose(self, *arguments):
            self.calls += 1
            if self.calls % 3 == 0:
                raise RuntimeError("every third time")
            return super().propose(*arguments)

    shaky = run(toy_model, requests, Shaky(expected, 2))
    assert shaky.tokens() == expected
    assert shaky.metrics.drafter_faults["oracle", "raised RuntimeError"] > 1
    assert not shaky.metrics.drafters_disabled
    assert shaky.metrics.num_accepted_tokens > 0


@pytest.mark.parametrize("hook", ["start", "stop"])
def test_a_fault_at_the_ends_of_a_request_is_isolated_too(toy_model, hook):
    requests = varied_requests(4)
    drafter = FaultyDrafter(lambda n: [None] * n)
    setattr(drafter, hook, lambda request: {}["missing"])
    assert run(toy_model, requests, drafter).decided() == plain_run(toy_model, requests).decided()


def test_duplicate_siblings_are_merged_with_their_subtrees(toy_model):
    request = [toy_request("0", range(1, 30), max_tokens=20, ignore_eos=True)]
    expected = run(toy_model, request).tokens()["0"]
    assert len(expected) >= 4

    class Duplicates(OracleDrafter):
        def draft(self, request, limit):
            tokens = self.future(request)[:2]
            if len(tokens) < 2:
                return None
            # the second duplicate carries the right child: merging must not lose it
            return Draft(tokens=(tokens[0], tokens[0], tokens[1]), parents=(-1, -1, 1))

    engine = make_engine(toy_model, Duplicates({"0": expected}, 3)).engine
    outcome = run_requests(engine, request)
    assert outcome.tokens()["0"] == expected
    assert 2 in range(len(outcome.outputs["0"].steps[-1].stats.acceptance_histogram))


def test_many_bad_drafts_in_one_step_are_one_faulty_step(toy_model):
    requests = [toy_request(str(i), range(1, 9), max_tokens=20, ignore_eos=True) for i in range(8)]
    drafter = FaultyDrafter(lambda n: [Draft(tokens=(10**6,))] * n)
    assembled = make_engine(toy_model, drafter, draft_fault_limit=3)
    for request in requests:
        assembled.engine.add(request)
    assembled.engine.step()
    assert assembled.engine.metrics.drafter_faults.total() == 8
    assert not assembled.engine.metrics.drafters_disabled
    assembled.engine.step()
    assembled.engine.step()
    assert assembled.engine.metrics.drafters_disabled == {"faulty"}


def test_a_drafter_starts_with_the_engines_own_planner_on_a_short_context(toy_model):
    extra = {"drafter": drafter_plugin(lambda: FaultyDrafter(lambda n: [Draft(tokens=(1,), source=["x"])] * n))}
    engine = make_engine(toy_model, extra=extra, max_model_len=128).engine
    outcome = run_requests(engine, [toy_request("a", range(1, 9))])
    assert len(outcome.tokens()["a"]) == 16
    assert outcome.metrics.drafter_faults["faulty", "source is not text"] > 0


def test_a_drafter_that_needs_layers_the_model_lacks_is_refused(toy_model):
    drafter = FaultyDrafter(lambda n: [None] * n)
    drafter.needs = DrafterNeeds(hidden_layers=(99,))
    with pytest.raises(PluginError, match="drafter needs the hidden states of layer 99; this model has layers 0"):
        make_engine(toy_model, drafter)


def test_a_planner_that_ignores_the_budget_is_cut_to_it(toy_model):
    class Greedy(FixedWidthPlanner):
        def choose(self, requests, budget, base_rows):
            return [request.draft for request in requests]

    request = toy_request("a", range(1, 9), max_tokens=20, ignore_eos=True)
    expected = run(toy_model, [request]).tokens()
    outcome = run(toy_model, [request], OracleDrafter(expected, 8), planner=Greedy(32), max_num_batched_tokens=4)
    assert outcome.tokens() == expected
    assert len(outcome.outputs["a"].steps[-1].stats.acceptance_histogram) == 4


def test_an_object_that_is_no_drafter_is_refused(toy_model):
    with pytest.raises(PluginError, match="a dict, which is no Drafter: its class does not extend"):
        make_engine(toy_model, extra={"drafter": drafter_plugin(dict)})


class NothingWanted(FixedWidthPlanner):
    def limits(self, requests):
        return [0] * len(requests)


class Listener(FaultyDrafter):
    """Hears every step, as a generator, and gives `surplus` drafts too many."""

    needs = DrafterNeeds(hidden_layers=(1,))

    def __init__(self, surplus):
        self.surplus, self.num_heard = surplus, 0

    def propose(self, batch, output, verdict, limits):
        self.num_heard += 1
        yield from [None] * (len(batch.spans) + self.surplus)


@pytest.mark.parametrize("surplus", [0, 1])
def test_a_step_in_which_nothing_is_wanted_is_heard_and_checked_like_any_other(toy_model, surplus):
    listener = Listener(surplus)
    engine = make_engine(toy_model, listener, planner=NothingWanted(8)).engine
    outcome = run_requests(engine, varied_requests(4))
    assert set(outcome.metrics.drafter_faults) == ({("faulty", "wrong number of drafts")} if surplus else set())
    assert (listener.num_heard == outcome.metrics.num_steps) == (not surplus), "a faulty one is switched off"


class Observer(Listener):
    """Has `observe_step`, which fails `num_failing` times."""

    def __init__(self, num_failing):
        super().__init__(0)
        self.num_failing, self.num_observed = num_failing, 0

    def observe_step(self, batch, output, verdict):
        self.num_observed += 1
        if self.num_observed <= self.num_failing:
            raise RuntimeError("what a step left is lost")


@pytest.mark.parametrize(("num_failing", "is_switched_off"), [(0, False), (2, False), (99, True)])
def test_a_drafter_that_observes_is_not_asked_for_drafts_that_nobody_wants(toy_model, num_failing, is_switched_off):
    observer = Observer(num_failing)
    engine = make_engine(toy_model, observer, planner=NothingWanted(8)).engine
    outcome = run_requests(engine, varied_requests(4))
    assert observer.num_heard == 0
    assert (observer.num_observed < outcome.metrics.num_steps) == is_switched_off
    assert outcome.metrics.drafter_faults["faulty", "raised RuntimeError"] == min(num_failing, observer.num_observed)
    assert outcome.tokens() == run(toy_model, varied_requests(4)).tokens()


class InTwoRoles(OracleDrafter):
    """Also an observer of the engine, whose method has another signature."""

    needs = DrafterNeeds(every_step=True)

    def observe(self, batch, verdict):
        raise AssertionError("nobody has made it an observer")


def test_a_drafter_may_have_the_method_of_an_observer(toy_model):
    plain = run(toy_model, varied_requests(4)).tokens()
    outcome = run(toy_model, varied_requests(4), InTwoRoles(plain, 4))
    assert outcome.tokens() == plain
    assert not outcome.metrics.drafter_faults


def test_two_drafters_of_one_name_are_refused(toy_model):
    extra = {}
    for name in ("one", "other"):
        plugin, declaration = drafter_plugin(lambda: OracleDrafter({}, 1))
        extra[name] = InProcessPlugin(plugin, msgspec.structs.replace(declaration, name=name))
    with pytest.raises(PluginError, match="other answers make_drafter with a OracleDrafter named 'oracle', as another"):
        make_engine(toy_model, extra=extra, allow_undeclared=True)
