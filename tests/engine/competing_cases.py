"""Drafters that may run with others, and a clock that no other process slows down."""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.speculation.first_draft import FirstDraft
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import Draft
from specserve_workbench.testing.drafters import DrafterPlugin, OracleDrafter
from specserve_workbench.testing.requests import TOY_VOCAB


def plugin(drafter, planner=None):
    declaration = PluginDeclaration(
        name=drafter.name,
        provides={"draft.chain": "a test's drafter"},
        compatible={"draft.chain": "drafts are compared and the best one is verified"},
    )
    return InProcessPlugin(DrafterPlugin(lambda: drafter, planner), declaration)


class Clock:
    """Stands where `time` does in the engine: a step of one request takes about two milliseconds, and of drafting
    nearly nothing but what drafters say that they take."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        for module, tick in (("engine.engine", 5e-4), ("engine.drafting", 1e-6), ("guards.drafter", 1e-6)):
            look = SimpleNamespace(perf_counter=partial(self.look, tick), monotonic=time.monotonic)
            monkeypatch.setattr(f"specserve.{module}.time", look)

    def look(self, tick):
        self.now += tick
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class EveryoneProposes(FirstDraft):
    """All drafters propose for all requests, and the longest draft of each is taken."""

    def limits(self, drafter, drafts):
        return [each.limit for each in drafts]

    def combine(self, request, proposals, limit):
        return max((proposal.draft for proposal in proposals), key=lambda draft: len(draft.tokens))


def composed_by(composer, max_draft_tokens=32):
    planner = FixedWidthPlanner(max_draft_tokens)
    planner.composer = composer
    return planner


class Knowing(OracleDrafter):
    """The next three tokens are forced; `shift` makes them wrong."""

    name = "knowing"
    proposes_forced = True
    shift = 0

    def draft(self, request, limit):
        tokens = tuple((token + self.shift) % TOY_VOCAB for token in self.future(request)[: min(limit, 3)])
        return Draft(tokens=tokens, survival=(1.0,) * len(tokens)) if tokens else None


class Continuing(OracleDrafter):
    """Two tokens after those that are forced."""

    name = "continuing"
    continues_forced = True

    def propose_after(self, batch, output, verdict, limits, forced):
        drafts = []
        for span, limit, tokens in zip(batch.spans, limits, forced, strict=True):
            future = tuple(self.future(span.request)[len(tokens) :][: min(limit, 2)]) if limit else ()
            drafts.append(Draft(tokens=future, survival=(0.9,) * len(future)) if future else None)
        return drafts
