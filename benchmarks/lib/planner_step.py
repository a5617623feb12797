"""What a step of the ranked planner takes: its limits, its choice and its learning, without an engine."""

from __future__ import annotations

import random
import time
from statistics import mean, median
from types import SimpleNamespace
from typing import Any, cast

from specserve.batch.drafts import first
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve.types import Draft, GenerateRequest, SpanVerdict, Verdict
from specserve_adaptive.ranked import RankedPlanner
from specserve_adaptive.step_costs import StepCosts

REPEATS, BLOCK = 960, 128
"""Steps; what is not computed in every step is in every block."""


def planner_seconds(num_requests: int, num_nodes: int) -> float:
    """The mean step of the median block of steps, with `num_requests` requests that each have a chain of
    `num_nodes` draft tokens, on warm caches."""
    rng = random.Random(0)
    requests = [drafted_request(i, num_nodes, rng) for i in range(num_requests)]
    rows = num_requests * (1 + num_nodes)
    planner = RankedPlanner(num_nodes, StepCosts([1, rows], [1.0, 1.0 + 0.01 * rows]))
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        planner.limits(requests)
        chosen = planner.choose(requests, rows, num_requests)
        choosing = time.perf_counter() - began
        batch, verdict = decided(requests, chosen)
        began = time.perf_counter()
        planner.learn(batch, verdict, 1.0 + 0.01 * batch.num_rows)
        taken.append(choosing + time.perf_counter() - began)
    return median(mean(taken[i : i + BLOCK]) for i in range(BLOCK, REPEATS, BLOCK))


def drafted_request(i: int, num_nodes: int, rng: random.Random) -> Request:
    wire = GenerateRequest(request_id=f"r{i}", prompt_token_ids=(1, 2))
    request = Request.admit(wire, seed=0, arrival=0.0, order=i, max_len=10**6)
    survival, own = 1.0, []
    for _ in range(num_nodes):
        survival *= rng.uniform(0.6, 1.0)
        own.append(survival)
    request.draft = Draft(tokens=tuple(range(num_nodes)), survival=tuple(own), source="bench")
    return request


def decided(requests: list[Request], chosen: list[Draft | int | None]) -> tuple[Any, Verdict]:
    """Of each draft half of the draft tokens are accepted."""
    spans, verdicts = [], []
    for request, choice in zip(requests, chosen, strict=True):
        drafted = choice if isinstance(choice, int) else 0  # all drafts are chains: their first tokens survive longest
        draft = first(request.draft, drafted) if request.draft is not None else None
        accepted = tuple(range(drafted // 2))
        spans.append(ScheduledSpan.of(request, 10, 1, scored=1 + drafted, draft=draft))
        verdicts.append(SpanVerdict(accepted, (*accepted, 10**6), None, None, None))
    rows = sum(span.length for span in spans)
    batch = SimpleNamespace(spans=tuple(spans), num_rows=rows, only_decodes=True)
    return cast("Any", batch), Verdict(verdicts)
