"""Requests with drafts, batches and machines of known cost for the tests of planning."""

from __future__ import annotations

import msgspec
import torch
from hypothesis import strategies as st

from specserve.batch.builder import BatchBuilder
from specserve.batch.request import Request
from specserve.types import Draft
from specserve_adaptive.ranked import RankedPlanner
from specserve_adaptive.step_costs import StepCosts
from specserve_workbench.testing.requests import toy_request


class FixedCosts(StepCosts):
    """A made-up machine: steps take what the table says, whatever real ones take."""

    def __init__(self, rows, seconds):
        super().__init__(list(rows), list(seconds))
        self.prior_per_draft = self.prior_per_draft_token = 0.0

    def observe(self, batch, seconds):
        pass


FLAT = ([1, 256], [1.0, 1.0])
LINEAR = ([1, 256], [1.0, 256.0])


def planner(costs=FLAT, max_draft_tokens=32):
    rows, seconds = costs
    return RankedPlanner(max_draft_tokens, FixedCosts(rows, seconds), "fair", ("s",))


def with_draft(draft, *, name="r", speculation=None, max_tokens=50):
    wire = toy_request(name, [1, 2], max_tokens=max_tokens, speculation=speculation)
    request = Request.admit(wire, seed=0, arrival=0.0, order=0, max_len=2 + max_tokens)
    request.draft = draft
    return request


def chain(*survival, tokens=None):
    return Draft(tokens=tokens or tuple(range(len(survival))), survival=survival, source="s")


def count(chosen):
    """Draft tokens of each choice: a draft, or how many of its first nodes."""
    return [0 if each is None else each if isinstance(each, int) else len(each.tokens) for each in chosen]


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


def batch_of(*spans):
    for i, span in enumerate(spans):
        span.request.tokens, span.request.blocks = [1] * 64, [4 * i + n for n in range(4)]
    placed = [msgspec.structs.replace(span, blocks=span.request.blocks) for span in spans]
    return BatchBuilder(16, torch.device("cpu")).schedule(placed)
