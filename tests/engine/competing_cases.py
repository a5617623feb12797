"""Drafters that may be asked beside others, and a clock that no other process slows down."""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve_workbench.testing.drafters import DrafterPlugin


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
