"""Runs with and without graphs, compared: what was decided, what was accepted, and how every step ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve_workbench.testing.engines import accepted, run_requests, watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.engine.engine import Engine
    from specserve.metrics import EngineMetrics
    from specserve.types import GenerateRequest
    from specserve_workbench.testing.engines import Run

MODES = ("piecewise", "full")


class Steps(NamedTuple):
    """How often steps ran in each mode, and the reasons of those that did not run in the best one."""

    full: int
    piecewise: int
    none: int
    reasons: set[str]


class KindsOfSteps:
    """Counts the steps that are decode or verify steps, independently of the engine's own rule: every row is a
    generated position and gets logits."""

    def __init__(self) -> None:
        self.generated = self.others = 0

    def observe(self, batch, verdict):
        rows = sum(span.length for span in batch.spans)
        scored = sum(span.scored for span in batch.spans)
        if rows == scored and all(span.start >= span.request.prompt_len for span in batch.spans):
            self.generated += 1
        else:
            self.others += 1

    def metrics(self):
        return ()


def steps_of(metrics: EngineMetrics) -> Steps:
    assert sum(metrics.graph_steps.values()) == metrics.num_steps
    count = dict.fromkeys(("full", "piecewise", "none"), 0)
    for (mode, _), number in metrics.graph_steps.items():
        count[mode] += number
    return Steps(**count, reasons={reason for _, reason in metrics.graph_steps if reason})


def assert_same(
    make: Callable[[str], Engine], requests: Sequence[GenerateRequest], *, timed: bool = False
) -> dict[str, Run]:
    """Engines of each mode of graphs give what an engine without graphs gives; in full mode every decode and verify
    step is replayed from a full graph and every other one from a piecewise one. `make`: an engine, by --graphs.
    `timed`: what is drafted depends on the time that it takes."""
    runs = {"none": run_requests(make("none"), requests)}
    expected = runs["none"].decided()
    assert steps_of(runs["none"].metrics) == (0, 0, runs["none"].metrics.num_steps, {"graphs are off"})
    for mode in MODES:
        engine, kinds = make(mode), KindsOfSteps()
        watch(engine, kinds)
        found = runs[mode] = run_requests(engine, requests)
        for request_id, decided in expected.items():
            assert found.decided()[request_id] == decided, f"request {request_id} differs with {mode} graphs"
        total = found.metrics.num_steps
        if mode == "full":
            assert steps_of(found.metrics) == (kinds.generated, kinds.others, 0, set())
            assert min(kinds.generated, kinds.others) > 0
        else:
            assert steps_of(found.metrics) == (0, total, 0, set())
        if not timed:
            assert accepted(found) == accepted(runs["none"])
            assert total == runs["none"].metrics.num_steps
    return runs
