"""How deep `eagle.steps=auto` drafts: as deep as a further pass saves more than it takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from specserve.batch.drafts import match
from specserve.protocols import DraftToken
from specserve.types import Draft
from specserve_eagle import depth as depth_module
from specserve_eagle.depth import EXPLORE_INTERVAL, AutoDepth
from specserve_eagle.estimates import NOTHING_SEEN, MovingAverage, TargetStep
from specserve_eagle.growing import GrowingChain

TOKENS, MAX_DEPTH = tuple(range(10, 18)), 8
VERIFY = 0.1
"""Seconds that a verified draft token adds to a step of one second."""


class World:
    """A clock, requests, a target that accepts so many draft tokens, and passes that take so long."""

    def __init__(self, monkeypatch, *, accepted, pass_seconds, num_requests=1, max_verified=MAX_DEPTH):
        self.now = 1.0
        monkeypatch.setattr(depth_module.time, "perf_counter", lambda: self.now)
        self.accepted, self.pass_seconds, self.max_verified = accepted, pass_seconds, max_verified
        self.requests = [SimpleNamespace(id=str(i)) for i in range(num_requests)]
        self.depth = AutoDepth()
        self.drafts = []

    def step(self):
        """Returns how deep was drafted."""
        verified = [draft.tokens[: self.max_verified] for draft in self.drafts] or [()] * len(self.requests)
        rows = sum(map(len, verified)) + len(self.requests)
        self.now += 1.0 + VERIFY * (rows - len(self.requests))
        spans = [
            SimpleNamespace(request=request, draft=Draft(tokens=tokens) if tokens else None, drafted=len(tokens))
            for request, tokens in zip(self.requests, verified, strict=True)
        ]
        paths = [range(min(len(tokens), self.accepted)) for tokens in verified]
        verdicts = [SimpleNamespace(tokens=(*TOKENS[: len(path)], 99), path=tuple(path)) for path in paths]
        batch = SimpleNamespace(spans=spans, num_rows=rows, only_decodes=True)
        self.depth.begin(batch, SimpleNamespace(spans=verdicts))
        self.drafts = [GrowingChain(SimpleNamespace(request=r), MAX_DEPTH) for r in self.requests]
        while True:
            for draft in self.drafts:
                draft.grow([[DraftToken(TOKENS[draft.depth], 0.9)]])
            if self.drafts[0].is_done or not self.depth.pays(self.drafts):
                break
            self.now += self.pass_seconds
        self.depth.end(self.drafts)
        return self.drafts[0].depth

    def depths(self, steps):
        return [self.step() for _ in range(steps)]


def usual(depths):
    return sorted(depths)[len(depths) // 2]


@pytest.mark.parametrize("accepted", [1, 3, 5])
def test_drafts_become_as_deep_as_tokens_are_accepted(monkeypatch, accepted):
    world = World(monkeypatch, accepted=accepted, pass_seconds=0.2)
    assert usual(world.depths(400)[200:]) == accepted


def test_cheap_passes_go_on_where_tokens_are_accepted(monkeypatch):
    assert usual(World(monkeypatch, accepted=8, pass_seconds=0.01).depths(400)[200:]) == MAX_DEPTH


def test_passes_that_take_longer_than_a_step_are_rare(monkeypatch):
    depths = World(monkeypatch, accepted=8, pass_seconds=1.5).depths(10 * EXPLORE_INTERVAL)[2 * EXPLORE_INTERVAL :]
    assert usual(depths) == 1
    assert max(depths) == 2, "a deeper level is tried now and then"


def test_a_pass_that_one_request_does_not_pay_for_pays_for_many(monkeypatch):
    alone = World(monkeypatch, accepted=3, pass_seconds=1.2)
    assert usual(alone.depths(400)[200:]) == 1
    together = World(monkeypatch, accepted=3, pass_seconds=0.3, num_requests=4)
    assert usual(together.depths(400)[200:]) == 3


def test_what_the_planner_does_not_verify_is_not_drafted(monkeypatch):
    assert usual(World(monkeypatch, accepted=8, pass_seconds=0.1, max_verified=2).depths(400)[200:]) == 2


@pytest.mark.parametrize(("more", "pays"), [(0.0, True), (0.3, True), (2.0, False)])
def test_what_verification_takes_counts_against_a_further_pass(more, pays):
    depth, draft = AutoDepth(), GrowingChain(SimpleNamespace(request=None), MAX_DEPTH)
    draft.grow([[DraftToken(TOKENS[0], 0.9)]])
    depth.target_step.plain, depth.target_step.more = 1.0, more
    depth.passes[1] = MovingAverage()
    depth.passes[1].add(0.1)
    assert depth.pays([draft]) == pays


def test_a_text_that_becomes_easier_is_drafted_deeper(monkeypatch):
    world = World(monkeypatch, accepted=1, pass_seconds=0.2)
    world.depths(200)
    world.accepted = 6
    assert usual(world.depths(1200)[800:]) == 6


def test_both_parts_of_a_step_are_learned():
    step = TargetStep()
    for i in range(3000):
        step.observe(2.0 + 0.25 * (i % 4), i % 4)
    assert step.plain == pytest.approx(2.0, abs=0.02)
    assert step.more == pytest.approx(0.25, abs=0.02)


def test_an_unknown_depth_is_expected_to_be_verified_and_accepted_less_often_than_the_path_above_it():
    accepted, verified = NOTHING_SEEN.expected(0.5)
    assert 0 < accepted < 0.5
    assert verified == 1.0


@pytest.mark.parametrize(("tokens", "shared"), [((5, 7), 2), ((5, 7, 9), 3), ((6, 8, 1), 2), ((9,), 0), ((), 0)])
def test_what_a_merged_draft_verifies_of_a_path_is_found(tokens, shared):
    draft = Draft(tokens=(5, 6, 7, 8, 9), parents=(-1, -1, 0, 1, 2))
    assert match(draft, tokens)[1] == shared
