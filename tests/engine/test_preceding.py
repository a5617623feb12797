"""The slots of the tokens before each row: as the row's own path has them, whatever the spans, blocks and drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specserve.batch.builder import BatchBuilder
from specserve.batch.preceding import PrecedingTokens
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve.kv.slots import num_blocks_for
from specserve.types import Draft
from specserve_workbench.testing.requests import toy_request

if TYPE_CHECKING:
    from specserve.batch.batch import Batch
    from specserve.batch.span import Span

CPU = torch.device("cpu")


def slots_on_path(span: Span, row: int, size: int) -> list[int]:
    """The definition: of the row and the tokens before it, the nearest first."""
    places, at = list(range(span.start + span.known)), row - span.known
    if at < 0:
        places = places[: span.start + row + 1]
    path = []
    while at >= 0:
        path.append(span.start + span.known + at)
        at = at - 1 if span.draft is None or span.draft.parents is None else span.draft.parents[at]
    return [span.blocks[p // size] * size + p % size for p in (*path, *reversed(places))]


@st.composite
def drafts(draw: st.DrawFn) -> Draft | None:
    count = draw(st.integers(0, 6))
    if not count:
        return None
    parents = tuple(draw(st.integers(-1, node - 1)) for node in range(count))
    return Draft(tokens=(7,) * count, parents=draw(st.sampled_from((None, parents))))


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    size, spans, taken = draw(st.sampled_from((1, 2, 4, 16))), list[ScheduledSpan](), 0
    for number in range(draw(st.integers(1, 4))):
        start, length, draft = draw(st.integers(0, 40)), draw(st.sampled_from((1, 1, 3, 50))), draw(drafts())
        request = Request.admit(
            toy_request(str(number), (7,) * (start + length)), seed=0, arrival=0.0, order=0, max_len=999
        )
        count = num_blocks_for(start + length + 6, size)
        request.blocks = draw(st.permutations(range(taken, taken + count)))
        taken += count
        spans.append(ScheduledSpan.of(request, start, length, scored=1, draft=draft))
    return BatchBuilder(size, CPU).schedule(spans)


@given(batch=batches(), reach=st.integers(0, 9))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_the_tokens_before_a_row_are_those_on_its_path(batch: Batch, reach: int) -> None:
    tokens = PrecedingTokens.of(batch, reach, CPU)
    assert tokens.before.shape == tokens.exists.shape == (batch.num_rows, reach)
    row = 0
    for span in batch.spans:
        for of_span in range(span.length):
            own, *before = slots_on_path(span, of_span, batch.block_size)
            assert tokens.own[row] == own
            there = before[:reach]
            assert tokens.exists[row].tolist() == [True] * len(there) + [False] * (reach - len(there))
            assert tokens.before[row].tolist() == there + [0] * (reach - len(there))
            row += 1
    assert row == batch.num_rows


def test_a_batch_without_rows_has_no_tokens_before_them() -> None:
    tokens = PrecedingTokens.of(BatchBuilder(16, CPU).schedule([]), 2, CPU)
    assert tokens.before.shape == (0, 2)


@pytest.mark.parametrize("blocks", [1, 3000])
def test_of_a_long_sequence_only_the_blocks_near_the_rows_are_read(blocks: int) -> None:
    """So that a step costs the same however much is cached."""

    class Counted(list[int]):
        read = 0

        def __getitem__(self, index):  # type: ignore[no-untyped-def]
            found = super().__getitem__(index)
            Counted.read += len(found) if isinstance(found, list) else 1
            return found

    request = Request.admit(toy_request("a", (7,) * (16 * blocks)), seed=0, arrival=0.0, order=0, max_len=16 * blocks)
    request.blocks = Counted(range(blocks))
    batch = BatchBuilder(16, CPU).schedule([ScheduledSpan.of(request, 16 * blocks - 1, 1, scored=1)])
    Counted.read = 0
    PrecedingTokens.of(batch, 2, CPU)
    assert Counted.read <= 3
