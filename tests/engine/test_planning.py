"""How much is verified: the planner's choice, what it learns from, and what a step is thought to cost."""

from __future__ import annotations

import math
import random
from functools import cache
from itertools import pairwise

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specserve.batch.batch import BatchBuilder
from specserve.batch.drafts import paths_of
from specserve.batch.request import Request
from specserve.batch.span import Span
from specserve.speculation.asking import FIRST_PATIENCE, LONG_REST, PATIENCE, SHORT_REST, Asking
from specserve.speculation.calibration import Calibration
from specserve.speculation.costs import POINTS, StepCosts, measure_costs
from specserve.speculation.planning import PROBE_EVERY, WORTHWHILE, CostPlanner, VerifyAll
from specserve.testing.drafters import OracleDrafter, WrongDrafter
from specserve.testing.engines import make_engine, run
from specserve.testing.requests import TOY_VOCAB, toy_request
from specserve.types import Draft, SpanVerdict, SpeculationParams, Verdict


class FixedCosts(StepCosts):
    """A made-up machine: steps take what the table says, whatever real ones take."""

    def __init__(self, rows, seconds):
        super().__init__(list(rows), list(seconds))
        self.per_drafting = self.believed = 0.0

    def observe(self, batch, seconds):
        pass


FLAT = ([1, 256], [1.0, 1.0])
LINEAR = ([1, 256], [1.0, 256.0])


def planner(costs=FLAT, max_draft_tokens=32):
    rows, seconds = costs
    return CostPlanner(max_draft_tokens, FixedCosts(rows, seconds), Calibration())


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


def test_a_gain_within_the_error_of_the_estimates_is_left_alone():
    assert planner(FLAT).choose([with_draft(chain(0.9 * WORTHWHILE))], 99, 1) == [None]


def test_one_request_may_speculate_however_many_others_do_not():
    others = [with_draft(None) for _ in range(200)]
    assert count(planner(FLAT).choose([with_draft(chain(0.5)), *others], 99, 201))[0] == 1


def test_before_its_cost_was_seen_a_guess_is_believed_to_cost_more_than_its_row():
    unseen = CostPlanner(32, StepCosts([1, 256], [1.0, 1.0]), Calibration())
    assert unseen.choose([with_draft(chain(0.15))], 99, 1) == [None]
    assert count(unseen.choose([with_draft(chain(0.9))], 99, 1)) == [1]


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
    """No other choice of so many guesses from the front of each request's own gives better speeds."""
    costs = ([1, 64], [1.0, 1.0 + 63 * slope])
    chosen = planner(costs).choose(requests, 99, len(requests))
    survival = [sorted(Calibration().survival(r.draft), reverse=True) if r.draft else [] for r in requests]
    base, table = len(requests), FixedCosts(*costs)

    def speeds(counts):
        seconds = table.seconds(base + sum(counts), base, sum(counts))
        return sum(math.log((1 + sum(own[:n])) / seconds) for own, n in zip(survival, counts, strict=True))

    def greedy(total):
        counts = [0] * base
        for _ in range(total):
            added = [
                (math.log(1 + own[n] / (1 + sum(own[:n]))), -at)
                for at, (own, n) in enumerate(zip(survival, counts, strict=True))
                if n < len(own)
            ]
            counts[-max(added)[1]] += 1
        return counts

    best = max(speeds(greedy(n)) for n in range(sum(map(len, survival)) + 1))
    plain = speeds([0] * base)
    assert speeds(count(chosen)) == pytest.approx(best if best > plain + WORTHWHILE else plain)


def test_one_request_may_not_be_slowed_down_for_its_neighbours_luck():
    """One of eight guesses well: 1.5 times the tokens in 1.3 times the time would be more per second."""
    requests = [with_draft(chain(*[0.99] * 4)), *(with_draft(None) for _ in range(7))]
    costs = ([1, 8, 9, 64], [1.0, 1.0, 1.3, 1.3])
    assert count(planner(costs).choose(requests, 99, 8)) == [0] * 8
    assert sum(count(planner(costs).choose([with_draft(chain(*[0.99] * 4)) for _ in range(8)], 99, 8))) == 32


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
    for i, span in enumerate(spans):
        span.request.tokens, span.request.blocks = [1] * 64, [4 * i + n for n in range(4)]
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
    assert [costs.seconds(rows, 1) for rows in (0, 1, 6, 11, 16, 21, 42)] == [1.0, 1.0, 1.5, 2.0, 4.0, 6.0, 12.0]


@given(st.lists(st.floats(0.001, 10.0), min_size=2, max_size=8), st.integers(1, 3))
def test_costs_never_fall_with_more_guesses(seconds, requests):
    costs = StepCosts([2 * i + 1 for i in range(len(seconds))], list(seconds))
    table = costs.by_guesses(requests, requests, 4 * len(seconds))
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(table))
    assert table == pytest.approx([costs.seconds(requests + n, requests, n) for n in range(len(table))])


def plain_batch(num_requests):
    return batch_of(*(Span(with_draft(None), 63, 1, 0, 1) for _ in range(num_requests)))


def guessing_batch(guesses):
    return batch_of(Span(with_draft(None), 60, 1 + guesses, guesses, 1 + guesses, chain(*[1.0] * guesses)))


def test_plain_steps_teach_what_a_batch_of_their_size_takes_and_prompts_do_not():
    costs = StepCosts([1, 4, 8], [1.0, 1.0, 1.0])
    for _ in range(200):
        costs.observe(batch_of(Span(with_draft(None), 0, 8, 0, 1)), 50.0)
    assert costs.seconds(1, 1) == 1.0
    for _ in range(200):
        costs.observe(plain_batch(1), 2.0)
        costs.observe(plain_batch(4), 5.0)
    assert [costs.seconds(n, n) for n in (1, 4)] == pytest.approx([2.0, 5.0], abs=0.01)
    assert costs.seconds(8, 8) == pytest.approx(5.0, abs=0.01), "the nearest size that ran"


def test_steps_with_guesses_teach_what_a_guess_takes_beyond_its_row():
    costs = StepCosts([1, 4, 8], [1.0, 1.0, 1.0])
    for _ in range(200):
        costs.observe(plain_batch(1), 1.0)
        costs.observe(guessing_batch(3), 2.5)
    assert costs.seconds(1, 1) == pytest.approx(1.0, abs=0.05)
    assert costs.seconds(4, 1, 3) == pytest.approx(2.5, abs=0.15)
    assert costs.seconds(8, 1, 7) > 3.5, "and each one more the same"


def test_where_every_step_has_guesses_what_a_plain_one_takes_is_learned_all_the_same():
    costs = StepCosts([1, 32], [1.0, 1.0])
    costs.observe(plain_batch(1), 3.0)  # something else held it up
    for _ in range(300):
        for guesses in (1, 2, 3):
            costs.observe(guessing_batch(guesses), 1.0 + 0.4 * guesses)
    assert costs.seconds(1, 1) == pytest.approx(1.0, abs=0.2)
    assert costs.seconds(4, 1, 3) == pytest.approx(2.2, abs=0.1)


def test_the_first_steps_with_guesses_teach_most_of_what_they_cost():
    costs = StepCosts([1, 4], [1.0, 1.0])
    costs.observe(plain_batch(1), 1.0)
    for _ in range(4):
        costs.observe(guessing_batch(3), 1.8)
    assert costs.seconds(4, 1, 3) > 1.6


def test_a_guess_that_was_dear_once_is_not_believed_so_for_ever():
    costs = StepCosts([1, 8], [1.0, 1.0])
    unseen = costs.seconds(4, 1, 3)
    for _ in range(50):
        costs.observe(plain_batch(1), 1.0)
        costs.observe(guessing_batch(3), 4.0)
    assert costs.seconds(4, 1, 3) > 2.0
    for _ in range(1000):
        costs.observe(plain_batch(1), 1.0)
    assert costs.seconds(4, 1, 3) == pytest.approx(unseen, rel=0.1)


def test_one_slow_step_moves_a_cost_a_little():
    costs = StepCosts([1, 4], [1.0, 1.0])
    costs.observe(plain_batch(1), 1.0)
    costs.observe(plain_batch(1), 1000.0)
    assert costs.seconds(1, 1) == pytest.approx(1.1)


@pytest.mark.parametrize(("num_blocks", "most_rows", "expected"), [
    (64, 512, list(POINTS)), (64, 40, [1, 4, 8, 16, 32, 33]), (3, 512, [1, 4, 8, 16]), (2, 1, [1]),
])  # fmt: skip
def test_costs_are_measured_at_the_points_that_fit(toy_model, num_blocks, most_rows, expected):
    parts = make_engine(toy_model, kv_memory=f"{16 * num_blocks}K").engine.parts
    costs = measure_costs(parts.runner, parts.builder, num_blocks=num_blocks, most_rows=most_rows, wait=lambda: None)
    assert costs.rows == expected
    assert 0 < costs.table[0] < 1.0
    assert costs.table == sorted(costs.table)


# --- end to end -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(toy_model):
    """Requests and their plain tokens."""
    requests = [toy_request(str(i), range(1, 20 + i), max_tokens=100, ignore_eos=True) for i in range(4)]
    return requests, run(toy_model, requests)


def rising():
    return CostPlanner(32, FixedCosts([1, 4, 64], [1.0, 1.1, 4.0]), Calibration())


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


@cache
def named(name):
    """The same request every time: of those that rest, nobody is looked at."""
    return with_draft(None, name=name)


def turns(asking, steps, after=lambda: None, name="r"):
    """In which of the next steps the request is asked; `after` happens in each of those."""
    request, asked = named(name), []
    for _ in range(steps):
        asked += asking.whom([request])
        if asked[-1]:
            after()
    return asked


def costly():
    asking = Asking()
    turns(asking, 1, name="other")
    asking.cost(1.0, 1)
    return asking


def test_a_request_whose_guesses_save_nothing_is_asked_at_first_and_then_rarely():
    asked = turns(costly(), 12 * LONG_REST)
    assert all(asked[:FIRST_PATIENCE])
    assert sum(asked[-10 * LONG_REST :]) == 10


def test_guesses_that_save_less_than_asking_costs_do_not_keep_it_going():
    asking = costly()
    asked = turns(asking, 12 * LONG_REST, lambda: asking.credit("r", 0.5))
    assert sum(asked[-10 * LONG_REST :]) < 20


def test_guesses_that_save_more_than_asking_costs_keep_it_going():
    asking = costly()
    assert all(turns(asking, 200, lambda: asking.credit("r", 2.0)))


def test_a_request_that_begins_to_save_is_asked_every_time_again():
    asking = costly()
    turns(asking, 100)
    asked = turns(asking, 60, lambda: asking.credit("r", 20.0))
    assert not asked[0]
    assert all(asked[LONG_REST:])


def test_one_guess_that_came_true_is_reason_to_ask_some_times_more():
    asking = costly()
    turns(asking, 100)
    asking.hope("r")
    asked = turns(asking, SHORT_REST)
    assert asked[0]
    assert asked.count(True) in (PATIENCE, PATIENCE + 1)


def test_what_came_in_while_all_rest_counts_at_once():
    """The guesses of one step are verified in the next, when the request rests already."""
    asking = costly()
    turns(asking, 100)
    while any(turns(asking, 1)):
        pass
    asking.credit("r", 20.0)
    assert turns(asking, 1) == [True]


def test_who_comes_while_the_others_rest_is_asked_at_once():
    asking = costly()
    old, new = (with_draft(None, name=name) for name in ("r", "new"))
    for _ in range(4 * LONG_REST):
        asking.whom([old])
    while any(asking.whom([old])):
        pass
    assert asking.whom([old, new]) == [False, True]
    assert asking.whom([new]) == [True]


def test_requests_that_rest_are_asked_in_the_same_steps():
    asking = costly()
    early, late = (with_draft(None, name=name) for name in "ab")
    turns(asking, 5, name="a")
    together = [asking.whom([early, late]) for _ in range(12 * LONG_REST)]
    assert all(a == b for a, b in together[-8 * LONG_REST :])


def test_what_asking_costs_is_learned_from_those_that_do_not_rest():
    asking = costly()
    turns(asking, 100)
    asking.cost(9.0, 1)
    assert asking.seconds == 1.0, "text that was held back is taken in, too"


def test_records_of_requests_that_ended_unseen_are_dropped():
    asking = Asking()
    for i in range(1000):
        turns(asking, 1, name=str(i))
    assert len(asking.records) < 100


def test_a_drafter_that_is_never_right_is_hardly_asked(toy_model, served):
    requests, plain = served
    asked = []

    class Counted(WrongDrafter):
        def draft(self, request, limit):
            asked.append(request.id)
            draft = super().draft(request, limit)
            return draft and msgspec.structs.replace(draft, survival=(0.5,) * len(draft.tokens))

    chosen = rising()
    chosen.asking.cost = lambda seconds, num_asked: setattr(chosen.asking, "seconds", 0.05)
    outcome, _ = drafted(toy_model, requests, Counted(plain.tokens(), 4, TOY_VOCAB), chosen)
    assert outcome.decided() == plain.decided()
    assert len(asked) < sum(len(tokens) for tokens in plain.tokens().values()) / 3
    assert not chosen.asking.records, "all of them ended"
