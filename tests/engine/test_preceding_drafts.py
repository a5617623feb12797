"""Which tokens come before each row in the passes of draft models, too: against the path written out."""

from __future__ import annotations

import random

import pytest
import torch

from specserve.batch.builder import BatchBuilder
from specserve.batch.drafts import paths_of
from specserve.batch.preceding import PrecedingTokens
from specserve.batch.span import Span
from specserve.types import Draft

SIZE = 16


def random_span(rng, number):
    start, known = rng.choice((0, 1, 2, 15, 16, rng.randrange(90))), rng.choice((1, 1, 2, 5, 40))
    blocks = [number * 20 + i for i in rng.sample(range(20), 20)]
    nodes = rng.choice((0, 0, 1, 4, 9))
    if not nodes:
        return Span(str(number), start, known, 0, 1, blocks)
    tokens, parents = tuple(range(nodes)), tuple(rng.randrange(-1, node) for node in range(nodes))
    first = rng.choice((0, 0, nodes - 1))
    if first:  # as in later passes of a draft model: the committed tokens are in the cache
        start, known = start + known, 0
    draft = Draft(tokens=tokens, parents=parents if first or rng.random() < 0.6 else None)
    return Span(str(number), start, known + nodes - first, nodes - first, 1, blocks, draft=draft, first_node=first)


def expected(span, reach):
    """By row, the slots of its path before it, the nearest first."""
    end = span.start + span.known
    slot_at = [span.blocks[i // SIZE] * SIZE + i % SIZE for i in range(end + 10)]
    for row in range(span.start, end):
        yield slot_at[:row][::-1][:reach]
    for path in paths_of(span.draft)[span.first_node :] if span.draft else ():
        yield (slot_at[:end] + [slot_at[end + node] for node in path[:-1]])[::-1][:reach]


@pytest.mark.parametrize("reach", [0, 1, 2, 6, 20])
def test_they_are_those_of_the_rows_own_path(reach):
    rng = random.Random(reach)
    for _ in range(60):
        spans = [random_span(rng, number) for number in range(rng.choice((1, 2, 5)))]
        batch = BatchBuilder(SIZE, torch.device("cpu")).build(spans, [range(200)] * len(spans))
        found = PrecedingTokens.of(batch, reach, torch.device("cpu"))
        wanted = [row for span in spans for row in expected(span, reach)]
        assert found.own.tolist() == batch.slots.tolist()
        assert found.before.shape == (batch.num_rows, reach)
        rows = zip(found.before.tolist(), found.exists.tolist(), strict=True)
        assert [[slot for slot, there in zip(*row, strict=True) if there] for row in rows] == wanted
