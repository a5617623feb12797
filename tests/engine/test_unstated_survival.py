"""A drafter that states no survival: asked as long as that pays, as shown by what was accepted; no clock is read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from planning_cases import planner, with_draft

from specserve.batch.span import Span
from specserve.types import Draft, SpanVerdict, Verdict

WIDTH = 4


def seconds_of(num_steps, *, asking, is_right, num_requests=1):
    """Seconds of all steps, how often the drafter was asked, and tokens of each request. Plain steps take a second."""
    planned = planner(costs=([1, 256], [1.0, 1.2]))
    requests = [with_draft(None, name=f"r{i}", max_tokens=10**6) for i in range(num_requests)]
    spent, num_asked, num_tokens = 0.0, 0, 0
    for _ in range(num_steps):
        proposed = [request.draft for request in requests]
        chosen = planned.choose(requests, 64, num_requests) if any(proposed) else [None] * num_requests
        spans, decided = [], []
        for request, draft, whole in zip(requests, chosen, proposed, strict=True):
            drafted = 0 if draft is None else len(draft.tokens)
            accepted = drafted if is_right else 0
            tokens = (1,) * accepted + (1 if is_right else 2,)
            spans.append(Span(request, 1, 1 + drafted, drafted, 1 + drafted, draft, whole))
            decided.append(SpanVerdict(tuple(range(accepted)), tokens, None, None, None))
            num_tokens += len(tokens)
        limits = planned.limits(requests)
        asked = sum(limit > 0 for limit in limits)
        for request, limit in zip(requests, limits, strict=True):
            request.draft = Draft(tokens=(1,) * min(limit, WIDTH), source="guest") if limit else None
        if asked:
            planned.asked(asking * asked, asked, 0.0)
        rows = sum(span.length for span in spans)
        batch = SimpleNamespace(spans=tuple(spans), num_rows=rows, only_decodes=True)
        planned.learn(batch, Verdict(decided), 1.0)
        spent += 1.0 + asking * asked
        num_asked += asked > 0
    return spent, num_asked, num_tokens / num_requests


@pytest.mark.parametrize(("asking", "most"), [(0.5, 1.05), (3.0, 1.05), (50.0, 1.35)])
def test_a_slow_drafter_that_is_wrong_costs_little(asking, most):
    spent, num_asked, _ = seconds_of(4000, asking=asking, is_right=False)
    assert num_asked < 4000 / 16
    assert spent < most * 4000


def test_a_slow_drafter_that_is_right_and_takes_longer_than_it_saves_is_not_asked_for_ever():
    spent, num_asked, num_tokens = seconds_of(4000, asking=20.0, is_right=True)
    assert num_asked < 4000 / 16
    assert num_tokens / spent > 1 / 1.15


def test_a_drafter_that_is_right_and_quick_is_asked_in_every_step():
    spent, num_asked, num_tokens = seconds_of(400, asking=0.1, is_right=True)
    assert num_asked > 0.95 * 400
    assert num_tokens / spent > 2.5


def test_several_requests_back_off_from_it_too():
    spent, _, _ = seconds_of(4000, asking=1.0, is_right=False, num_requests=4)
    assert spent < 1.1 * 4000
