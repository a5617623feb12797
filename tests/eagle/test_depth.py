"""How deep `eagle.steps=auto` drafts: as deep as a further pass raises the expected speed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from specserve.protocols import DraftChains, DraftToken
from specserve_eagle import depth as depth_module
from specserve_eagle.depth import EXPLORE_INTERVAL, MAX_LEARNED, AutoDepth
from specserve_eagle.estimates import Outlook, Path
from specserve_eagle.growing import GrowingChain, GrowingTree

TOKENS, MAX_DEPTH = tuple(range(10, 18)), 8
VERIFY = 0.1
"""Seconds that a verified draft token adds to a step of one second."""


class Costs:
    """`specserve.protocols.TargetCosts`"""

    def __init__(self, verify):
        self.verify = verify

    def seconds(self, rows, requests, guesses=0):
        assert rows == requests + guesses
        return 1.0 + self.verify * guesses


class World:
    """A clock, requests, a target that accepts `accepted` draft tokens, and passes of `pass_seconds` each."""

    def __init__(self, monkeypatch, *, accepted, pass_seconds, num_requests=1, verify=VERIFY, in_one_call=False):
        self.now = 1.0
        monkeypatch.setattr(depth_module.time, "perf_counter", lambda: self.now)
        self.accepted, self.pass_seconds, self.in_one_call = accepted, pass_seconds, in_one_call
        self.requests = [SimpleNamespace(id=str(i)) for i in range(num_requests)]
        self.depth = AutoDepth(Costs(verify))
        self.paths = [()] * num_requests
        self.num_calls = 0

    def verdict(self, i, path):
        """What the target gives for request i."""
        return SimpleNamespace(tokens=(*TOKENS[: min(len(path), self.accepted)], 99))

    def step(self):
        """Returns how deep was drafted."""
        verdicts = [self.verdict(i, path) for i, path in enumerate(self.paths)]
        batch = SimpleNamespace(spans=[SimpleNamespace(request=request) for request in self.requests])
        self.depth.begin(batch, SimpleNamespace(spans=verdicts))
        drafts = [GrowingChain(SimpleNamespace(request=r), MAX_DEPTH) for r in self.requests]
        steps = self.depth.ahead(drafts)
        levels = steps[0] if self.in_one_call else 1
        for _ in range(levels):
            self.grow(drafts)
        seconds = self.pass_seconds * (levels - 1)
        self.now += seconds
        self.num_calls = 1
        if self.in_one_call:
            self.depth.ran(DraftChains([[]] * len(drafts), None, seconds, levels - 1))
        growing = drafts
        while growing and not growing[0].is_done:
            growing = [growing[i] for i in self.depth.deeper(growing)]
            if growing:
                self.now += self.pass_seconds
                self.num_calls += 1
                self.grow(growing)
        self.depth.end(drafts)
        self.paths = [draft.tokens for draft in drafts]
        return max(draft.depth for draft in drafts)

    def grow(self, drafts):
        for draft in drafts:
            draft.grow([[DraftToken(TOKENS[draft.depth], 0.9)]])

    def depths(self, steps):
        return [self.step() for _ in range(steps)]


def usual(depths):
    return sorted(depths)[len(depths) // 2]


@pytest.mark.parametrize("in_one_call", [False, True])
@pytest.mark.parametrize("accepted", [1, 3, 5])
def test_drafts_become_as_deep_as_tokens_are_accepted(monkeypatch, accepted, in_one_call):
    world = World(monkeypatch, accepted=accepted, pass_seconds=0.1, in_one_call=in_one_call)
    assert usual(world.depths(400)[200:]) == accepted


@pytest.mark.parametrize("in_one_call", [False, True])
def test_cheap_passes_go_on_where_tokens_are_accepted(monkeypatch, in_one_call):
    world = World(monkeypatch, accepted=8, pass_seconds=0.01, in_one_call=in_one_call)
    assert usual(world.depths(400)[200:]) == MAX_DEPTH


def test_levels_that_paid_before_are_made_in_one_call(monkeypatch):
    world = World(monkeypatch, accepted=4, pass_seconds=0.05, in_one_call=True)
    world.depths(200)
    assert usual([world.step() and world.num_calls for _ in range(50)]) == 1


@pytest.mark.parametrize("in_one_call", [False, True])
def test_passes_that_take_longer_than_a_step_are_rare(monkeypatch, in_one_call):
    world = World(monkeypatch, accepted=8, pass_seconds=2.5, in_one_call=in_one_call)
    depths = world.depths(10 * EXPLORE_INTERVAL)[2 * EXPLORE_INTERVAL :]
    assert usual(depths) == 1
    assert max(depths) == 2, "a deeper level is tried now and then"
    assert depths.count(2) == 8


def test_a_pass_that_one_request_does_not_pay_for_pays_for_many(monkeypatch):
    alone = World(monkeypatch, accepted=3, pass_seconds=1.2, verify=0.01)
    assert usual(alone.depths(400)[200:]) == 1
    together = World(monkeypatch, accepted=3, pass_seconds=0.3, num_requests=4, verify=0.01)
    assert usual(together.depths(400)[200:]) == 3


@pytest.mark.parametrize(("verify", "deepest"), [(0.01, 8), (0.6, 2)])
def test_what_verification_takes_counts_against_a_further_pass(monkeypatch, verify, deepest):
    depths = World(monkeypatch, accepted=8, pass_seconds=0.05, verify=verify).depths(400)[200:]
    assert (usual(depths) <= deepest) if deepest < MAX_DEPTH else (usual(depths) == deepest)


@pytest.mark.parametrize("in_one_call", [False, True])
def test_a_text_that_becomes_easier_is_drafted_deeper(monkeypatch, in_one_call):
    world = World(monkeypatch, accepted=1, pass_seconds=0.1, in_one_call=in_one_call)
    world.depths(200)
    world.accepted = 6
    assert usual(world.depths(1200)[800:]) == 6


@pytest.mark.parametrize("in_one_call", [False, True])
def test_a_text_that_becomes_harder_is_soon_drafted_less_deep(monkeypatch, in_one_call):
    world = World(monkeypatch, accepted=8, pass_seconds=0.1, in_one_call=in_one_call)
    world.depths(300)
    world.accepted = 1
    assert max(world.depths(150)[100:]) <= 3


class Unlike(World):
    """Half of the requests are drafted for in vain."""

    def verdict(self, i, path):
        return SimpleNamespace(tokens=(99,)) if i % 2 else super().verdict(i, path)

    def grow(self, drafts):
        for draft in drafts:
            hopeless = int(draft.sequence.request.id) % 2
            draft.grow([[DraftToken(TOKENS[draft.depth], 0.2 if hopeless else 0.95)]])


def test_drafts_that_are_not_worth_verification_do_not_take_part_in_deeper_passes(monkeypatch):
    world = Unlike(monkeypatch, accepted=6, pass_seconds=0.05, num_requests=4, verify=0.04)
    world.depths(300)
    depths = [len(path) for path in world.paths]
    assert depths[1] == depths[3] == 1
    assert min(depths[0], depths[2]) >= 3


def learned(outlook, tokens, given, stated=(0.9, 0.81, 0.73)):
    path = Path()
    for survival in stated:
        outlook.extend(path, survival)
    outlook.learn(path, tokens, given)
    return path


def test_what_was_not_verified_counts_where_the_target_gave_the_token():
    outlook = Outlook()
    for _ in range(200):
        learned(outlook, (1, 2, 3), (1, 7))  # the second is wrong, whether or not it was verified
    path = learned(outlook, (), ())
    assert path.survival[1] == pytest.approx(1.0, abs=0.05)
    assert path.survival[2] == pytest.approx(0.0, abs=0.1)
    assert outlook.stated.trials.get(29) is None, "what is behind a wrong token is unknown"


def test_what_lies_behind_the_last_known_token_is_not_learned():
    outlook = Outlook()
    learned(outlook, (1, 2, 3), (1,))
    assert len(outlook.stated.trials) == len(outlook.further.trials) == 1


def test_a_head_that_is_too_sure_of_itself_is_corrected():
    outlook = Outlook()
    for i in range(400):
        learned(outlook, (1,), (1 if i % 2 else 0,), stated=(0.95,))
    assert learned(outlook, (), (), stated=(0.95,)).survival[1] == pytest.approx(0.5, abs=0.06)


def test_an_unknown_depth_is_expected_to_be_right_less_often_than_the_path_above_it():
    outlook, path = Outlook(), Path()
    outlook.extend(path, 0.5)
    assert 0 < outlook.next(path, 1) < path.survival[1]


def test_large_batches_are_learned_from_in_turns(monkeypatch):
    world = World(monkeypatch, accepted=2, pass_seconds=0.1, num_requests=4 * MAX_LEARNED)
    seen = set()
    learn = world.depth.outlook.learn

    def noting(path, proposed, given):
        seen.add(id(path))
        learn(path, proposed, given)

    monkeypatch.setattr(world.depth.outlook, "learn", noting)
    world.step()
    world.step()
    assert 0 < len(seen) <= MAX_LEARNED


def test_the_levels_of_a_tree_state_their_best_survival():
    tree = GrowingTree(SimpleNamespace(request=None), limit=8, steps=3, topk=2)
    tree.grow([[DraftToken(1, 0.5), DraftToken(2, 0.4)]])
    tree.grow([[DraftToken(3, 0.2), DraftToken(4, 0.1)], [DraftToken(5, 0.9), DraftToken(6, 0.05)]])
    assert tree.stated == pytest.approx([0.5, 0.36])


def test_chains_that_end_early_are_no_reason_to_go_on(monkeypatch):
    world = World(monkeypatch, accepted=6, pass_seconds=0.05, in_one_call=True)
    world.depths(200)
    before = world.depth.num_ahead
    draft = GrowingChain(SimpleNamespace(request=world.requests[0]), MAX_DEPTH)
    world.depth.ahead([draft])
    draft.grow([[DraftToken(TOKENS[0], 0.9)]])
    draft.grow([[]])
    world.depth.ran(DraftChains([[]], None, 0.1, before - 1))
    world.depth.end([draft])
    assert world.depth.num_ahead < before


def test_a_pass_that_failed_leaves_nothing_behind(monkeypatch):
    """The request goes on with other tokens; a draft of the failed step is not mistaken for one of the next."""
    world = World(monkeypatch, accepted=3, pass_seconds=0.05)
    world.depths(50)
    draft = GrowingChain(SimpleNamespace(request=world.requests[0]), MAX_DEPTH)
    world.depth.ahead([draft])
    draft.grow([[DraftToken(TOKENS[0], 0.3)]])
    world.depth.deeper([draft])  # the pass that follows raises: no `end`
    draft = GrowingChain(SimpleNamespace(request=world.requests[0]), MAX_DEPTH)
    world.depth.ahead([draft])
    draft.grow([[DraftToken(TOKENS[0], 0.9)]])
    assert world.depth.path_of(draft, 1).stated == [1.0, 0.9]
