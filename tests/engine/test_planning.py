"""How much is verified: the planner's choice, what it learns from, and what a step is thought to cost."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specserve.batch import BatchBuilder
from specserve.request import Request
from specserve.spans import Span
from specserve.speculation.calibration import Calibration
from specserve.speculation.costs import POINTS, StepCosts, measure_costs
from specserve.speculation.planning import PROBE_EVERY, REST, CostPlanner, VerifyAll
from specserve.speculation.trees import paths_of
from specserve.testing.drafters import OracleDrafter, WrongDrafter
from specserve.testing.engines import make_engine, run
from specserve.testing.requests import TOY_VOCAB, toy_request
from specserve.types import Draft, SpanVerdict, SpeculationParams, Verdict

FLAT = ([1, 256], [1.0, 1.0])
LINEAR = ([1, 256], [1.0, 256.0])


def planner(costs=FLAT, max_draft_tokens=32):
    rows, seconds = costs
    return CostPlanner(max_draft_tokens, StepCosts(list(rows), list(seconds)), Calibration())


def with_draft(draft, *, name="r", speculation=None, max_tokens=50):
    wire = toy_request(name, [1, 2], max_tokens=max_tokens, speculation=speculation)
    request = Request.admit(wire, seed=0, arrival=0.0, order=0, max_len=2 + max_tokens)
    request.draft = draft
    return request


def chain(*survival, tokens=None):
    return Draft(tokens=tokens or tuple(range(len(survival))), survival=survival, source="s")


def count(chosen):
    return [0 if draft is None else len(draft.tokens) for draft in chosen]


@st.composite
def drafted_requests(draw):
    """Up to four requests with trees whose survival never rises along a path; some have no draft."""
    requests = []
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.integers(0, 8))
        parents = tuple(draw(st.integers(-1, node - 1)) for node in range(size))
        survival = []
        for parent in parents:
            above = 1.0 if parent < 0 else survival[parent]
            survival.append(above * draw(st.sampled_from((0.0, 0.3, 0.9, 1.0))))
        draft = Draft(tokens=tuple(range(size)), parents=parents, survival=tuple(survival), source="s")
        requests.append(with_draft(draft if size else None))
    return requests


# --- the choice -----------------------------------------------------------------------------------------


def test_nothing_is_verified_where_rows_cost_as_much_as_they_may_bring():
    assert planner(LINEAR).choose([with_draft(chain(0.3, 0.1))], 99, 1) == [None]


def test_everything_is_verified_where_more_rows_cost_nothing():
    draft = chain(0.3, 0.1, 0.01)
    assert planner(FLAT).choose([with_draft(draft)], 99, 1) == [draft]


def test_guesses_fill_a_stair_and_stop_at_its_edge():
    stairs = ([1, 32, 33, 64], [1.0, 1.0, 3.0, 3.0])
    requests = [with_draft(chain(*[0.9**d for d in range(1, 17)])) for _ in range(4)]
    assert sum(count(planner(stairs).choose(requests, 999, 4))) == 28


def test_the_likelier_guesses_of_all_requests_go_first():
    requests = [with_draft(chain(0.9, 0.8)), with_draft(chain(0.2, 0.1)), with_draft(None)]
    assert count(planner().choose(requests, 2, 3)) == [2, 0, 0]
    assert count(planner().choose(requests, 3, 3)) == [2, 1, 0]


@given(requests=drafted_requests(), budget=st.integers(-3, 40), linear=st.booleans())
def test_a_choice_fits_the_budget_and_holds_every_ancestor(requests, budget, linear):
    chosen = planner(([1, 64], [1.0, 8.0]) if linear else FLAT).choose(requests, budget, len(requests))
    assert sum(count(chosen)) <= max(budget, 0)
    for request, draft in zip(requests, chosen, strict=True):
        if draft is not None:
            # tokens are node numbers, so a path of tokens in the choice names a path of the proposal
            proposed = paths_of(request.draft)
            assert all(
                tuple(draft.tokens[n] for n in path) == proposed[draft.tokens[path[-1]]] for path in paths_of(draft)
            )


@given(requests=drafted_requests(), budget=st.integers(0, 40))
def test_verify_all_takes_the_front_of_every_draft_as_far_as_the_budget_goes(requests, budget):
    chosen = count(VerifyAll(32).choose(requests, budget, len(requests)))
    assert sum(chosen) == min(budget, sum(len(r.draft.tokens) for r in requests if r.draft))


@given(requests=drafted_requests(), slope=st.floats(0.0, 1.0))
def test_the_choice_is_the_best_of_all_prefixes(requests, slope):
    costs = ([1, 64], [1.0, 1.0 + 63 * slope])
    chosen = planner(costs).choose(requests, 99, len(requests))
    survival = sorted((s for r in requests if r.draft for s in Calibration().survival(r.draft)), reverse=True)
    base, table = len(requests), StepCosts(*costs)
    rates = [(base + sum(survival[:n])) / table.seconds(base + n) for n in range(len(survival) + 1)]
    assert rates[sum(count(chosen))] == pytest.approx(max(rates))


def test_a_hopeless_drafter_is_probed_with_one_guess_now_and_then():
    hopeless = planner(LINEAR)
    chosen = [count(hopeless.choose([with_draft(chain(0.1))], 99, 1))[0] for _ in range(3 * PROBE_EVERY)]
    assert [at for at, n in enumerate(chosen, 1) if n] == [PROBE_EVERY, 2 * PROBE_EVERY, 3 * PROBE_EVERY]
    assert max(chosen) == 1


@pytest.mark.parametrize("kind", [VerifyAll, lambda most: planner(max_draft_tokens=most)])
def test_limits_are_the_smaller_of_the_engines_and_the_requests(kind):
    wishes = (None, SpeculationParams(max_draft_tokens=3), SpeculationParams(max_draft_tokens=99),
              SpeculationParams(max_draft_tokens=0), SpeculationParams(enabled=False))  # fmt: skip
    requests = [with_draft(None, speculation=wish) for wish in wishes]
    assert kind(8).limits(requests) == [8, 3, 8, 0, 0]
    assert kind(8).limits([with_draft(None, max_tokens=1)]) == [0], "the last token comes as a bonus"


# --- what it learns -------------------------------------------------------------------------------------


def observed(calibration, make, truth, times=2000):
    """Feed proposals of which each guess is right, given its parent, with probability `truth`."""
    rng = random.Random(0)
    for _ in range(times):
        draft = make()
        came = []
        for token in draft.tokens:
            came.append(token if rng.random() < truth else token + 1)
            if came[-1] != token:
                break
        calibration.observe(draft, came)


@pytest.mark.parametrize("truth", [0.05, 0.5, 0.95])
def test_survival_by_depth_converges_to_the_truth(truth):
    calibration, draft = Calibration(), Draft(tokens=(1, 2, 3), source="s")
    observed(calibration, lambda: draft, truth)
    first, second, _ = calibration.survival(draft)
    assert first == pytest.approx(truth, abs=0.12)
    assert second <= first
    if truth > 0.4:
        assert second / first == pytest.approx(truth, abs=0.15)


@pytest.mark.parametrize("truth", [0.1, 0.9])
def test_a_stated_survival_is_corrected_to_what_such_guesses_did(truth):
    calibration, draft = Calibration(), chain(0.5, 0.25)
    assert calibration.survival(draft) == [0.5, 0.25]
    observed(calibration, lambda: draft, truth)
    assert calibration.survival(draft)[0] == pytest.approx(truth, abs=0.12)


def test_only_guesses_whose_ancestors_came_true_are_scored():
    calibration = Calibration()
    tree = Draft(tokens=(1, 2, 5, 6), parents=(-1, -1, 0, 1), source="s")
    calibration.observe(tree, (1, 9))
    by_depth = {depth: rate.trials for (_, _, depth), rate in calibration.rates.items()}
    assert by_depth == pytest.approx({1: 2.0, 2: 1.0}, rel=0.01), "node 3 hangs from a miss, and says nothing"
    calibration.observe(tree, (1,))
    assert calibration.rates["s", "depth", 2].trials == 1.0, "depth 2 was not decided this time"


def test_sources_do_not_share_their_record():
    calibration = Calibration()
    good, bad = (Draft(tokens=(1,), source=name) for name in ("good", "bad"))
    for _ in range(50):
        calibration.observe(good, (1,))
        calibration.observe(bad, (2,))
    assert calibration.survival(good)[0] > 0.9 > 0.1 > calibration.survival(bad)[0]


@given(requests=drafted_requests())
def test_survival_never_rises_along_a_path(requests):
    calibration = Calibration()
    for request in requests:
        if request.draft is not None:
            calibration.observe(request.draft, (0, 1, 2))
    for request in requests:
        if request.draft is not None:
            survival = calibration.survival(request.draft)
            assert all(
                0 <= survival[p[-1]] <= (survival[p[-2]] if len(p) > 1 else 1.0) for p in paths_of(request.draft)
            )


def batch_of(*spans):
    request = spans[0].request
    request.tokens, request.blocks = [1] * 64, [0, 1, 2, 3]
    return BatchBuilder(16, torch.device("cpu")).build(spans)


def test_a_proposal_teaches_whether_it_was_verified_or_not():
    learner, proposed = planner(), Draft(tokens=(4, 5), source="s")
    request = with_draft(None)
    batch = batch_of(Span(request, 63, 1, 0, 1, None, proposed))
    learner.learn(batch, Verdict([SpanVerdict((), (4,), None, None, None)]), 1.0)
    assert learner.calibration.rates["s", "depth", 1].hits == 1.0
    learner.learn(batch, Verdict([SpanVerdict((), (), None, None, None)]), 1.0)
    assert learner.calibration.rates["s", "depth", 1].trials == 1.0, "a step that decided nothing teaches nothing"


# --- what a step costs ----------------------------------------------------------------------------------


def test_costs_are_interpolated_between_points_and_extended_in_proportion():
    costs = StepCosts([1, 11, 21], [1.0, 2.0, 6.0])
    assert [costs.seconds(rows) for rows in (0, 1, 6, 11, 16, 21, 42)] == [1.0, 1.0, 1.5, 2.0, 4.0, 6.0, 12.0]


@given(st.lists(st.floats(0.001, 10.0), min_size=2, max_size=8))
def test_costs_never_fall_with_more_rows(seconds):
    costs = StepCosts([2 * i + 1 for i in range(len(seconds))], list(seconds))
    table = [costs.seconds(rows) for rows in range(4 * len(seconds))]
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(table))


def test_decode_steps_refine_the_table_and_prompts_do_not():
    costs = StepCosts([1, 4, 8], [1.0, 1.0, 1.0])
    request = with_draft(None)
    for _ in range(200):
        costs.observe(batch_of(Span(request, 0, 8, 0, 1)), 50.0)
    assert costs.table == [1.0, 1.0, 1.0]
    for _ in range(200):
        costs.observe(batch_of(Span(request, 60, 4, 3, 4, chain(1.0, 1.0, 1.0))), 3.0)
    assert costs.table == pytest.approx([1.0, 3.0, 3.0], abs=0.01)


def test_a_machine_that_got_faster_is_believed_whatever_was_measured_below():
    costs = StepCosts([1, 4, 8], [5.0, 5.0, 5.0])
    for _ in range(200):
        costs.observe(batch_of(Span(with_draft(None), 60, 4, 3, 4, chain(1.0, 1.0, 1.0))), 1.0)
    assert costs.table == pytest.approx([1.0, 1.0, 5.0], abs=0.01)


def test_one_slow_step_moves_the_table_a_little():
    costs = StepCosts([1, 4], [1.0, 1.0])
    costs.observe(batch_of(Span(with_draft(None), 63, 1, 0, 1)), 1000.0)
    assert costs.table[0] == pytest.approx(1.05)


@pytest.mark.parametrize(("num_blocks", "most_rows", "expected"), [
    (64, 512, list(POINTS)), (64, 40, [1, 4, 8, 16, 32, 33]), (3, 512, [1, 4, 8, 16]), (2, 1, [1]),
])  # fmt: skip
def test_costs_are_measured_at_the_points_that_fit(toy_model, num_blocks, most_rows, expected):
    parts = make_engine(toy_model, kv_memory=f"{16 * num_blocks}K").engine.parts
    costs = measure_costs(
        parts.runner, parts.scheduler.builder, num_blocks=num_blocks, most_rows=most_rows, wait=lambda: None
    )
    assert costs.rows == expected
    assert 0 < costs.table[0] < 1.0
    assert costs.table == sorted(costs.table)


# --- end to end -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(toy_model):
    """Requests and their plain tokens."""
    requests = [toy_request(str(i), range(1, 20 + i), max_tokens=100, ignore_eos=True) for i in range(4)]
    return requests, run(toy_model, requests)


class RisingCosts(StepCosts):
    """A made-up machine, which the times of the real one must not correct."""

    def __init__(self):
        super().__init__([1, 4, 64], [1.0, 1.1, 4.0])

    def observe(self, batch, seconds):
        pass


def rising():
    return CostPlanner(32, RisingCosts(), Calibration())


def drafted(model, requests, drafter, chosen):
    outcome = run(model, requests, drafter, planner=chosen)
    return outcome, outcome.metrics.num_draft_tokens


def test_verifying_a_wrong_drafter_is_given_up(toy_model, served):
    requests, plain = served
    wrong = WrongDrafter(plain.tokens(), 4, TOY_VOCAB)
    outcome, verified = drafted(toy_model, requests, wrong, rising())
    _, all_of_them = drafted(toy_model, requests, wrong, VerifyAll(32))
    assert outcome.decided() == plain.decided()
    assert 0 < verified < all_of_them / 10


def test_verifying_an_oracle_goes_on(toy_model, served):
    requests, plain = served
    outcome, verified = drafted(toy_model, requests, OracleDrafter(plain.tokens(), 4), rising())
    _, all_of_them = drafted(toy_model, requests, OracleDrafter(plain.tokens(), 4), VerifyAll(32))
    assert outcome.decided() == plain.decided()
    assert all_of_them * 0.8 < verified == outcome.metrics.num_accepted_tokens
    assert outcome.metrics.num_steps < plain.metrics.num_steps / 3


def test_a_drafter_that_becomes_right_is_found_out_without_being_verified(toy_model, served):
    requests, plain = served

    class LateOracle(OracleDrafter):
        def draft(self, request, limit):
            right = super().draft(request, limit)
            if request.num_generated > 50 or right is None:
                return right
            return Draft(tokens=tuple((t + 1) % TOY_VOCAB for t in right.tokens))

    outcome, _ = drafted(toy_model, requests, LateOracle(plain.tokens(), 4), rising())
    assert outcome.metrics.num_accepted_tokens > 50


# --- when to draft at all -------------------------------------------------------------------------------


def asked(planner, request):
    return planner.limits([request]) != [0]


def test_a_drafter_whose_guesses_bring_nothing_is_asked_in_every_eighth_step():
    hopeless, request = planner(LINEAR), with_draft(chain(0.1))
    turns = []
    for _ in range(200):
        turns.append(asked(hopeless, request))
        if turns[-1]:
            hopeless.choose([request], 99, 1)
    assert all(turns[:20])
    assert sum(turns[-80:]) == 80 / REST


def test_a_drafter_that_guesses_nothing_is_asked_less_too():
    silent, request = planner(), with_draft(None)
    assert sum(asked(silent, request) for _ in range(200)) < 70


def test_a_drafter_that_begins_to_pay_is_asked_every_time_again():
    changing, poor, good = planner(), with_draft(None), with_draft(chain(0.9, 0.8, 0.7))
    for _ in range(100):
        asked(changing, poor)
    turns = []
    for _ in range(60):
        turns.append(asked(changing, good))
        if turns[-1]:
            changing.choose([good], 99, 1)
    assert not turns[0]
    assert all(turns[REST:])
