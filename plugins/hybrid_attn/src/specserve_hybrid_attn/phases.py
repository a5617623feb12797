"""Splits a batch by phase: rows of prompt positions and rows of generated positions.

A position's phase never changes: below `prompt_len` it is the prompt's, in a recomputation too. It does not depend on
how many rows or draft tokens the request has in this step.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.api.batch import DeviceRows, to_device

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.api.batch import Batch, Span


class SubBatch(NamedTuple):
    """Some rows of a batch as a batch of their own. `rows`: their indices, a slice or [n] int64, ascending."""

    batch: Batch
    rows: slice | Tensor


def num_prompt_rows(span: Span) -> int:
    """The leading rows of the span that are prompt positions."""
    return min(max(span.prompt_len - span.start, 0), span.length)


def is_prompt_only(batch: Batch) -> bool:
    return all(span.start + span.length <= span.prompt_len for span in batch.spans)


def is_generated_only(batch: Batch) -> bool:
    return all(span.start >= span.prompt_len for span in batch.spans)


def prompt_part(batch: Batch) -> SubBatch:
    return part_of(batch, lambda span: (0, num_prompt_rows(span)))


def generated_part(batch: Batch) -> SubBatch:
    return part_of(batch, lambda span: (num_prompt_rows(span), span.length))


def part_of(batch: Batch, rows_of: Callable[[Span], tuple[int, int]]) -> SubBatch:
    """The rows [begin, end) that `rows_of` gives for each span. Attention does not read which are scored: none is."""
    spans, ranges = [], []
    for span, offset in zip(batch.spans, batch.row_offsets, strict=True):
        begin, end = rows_of(span)
        if begin < end:
            spans.append(slice_span(span, begin, end))
            ranges.append(range(offset + begin, offset + end))
    lens = tuple(map(len, ranges))
    rows = row_index(ranges, batch)
    part = msgspec.structs.replace(
        batch,
        spans=tuple(spans),
        rows=DeviceRows(*(tensor[rows] for tensor in batch.device_rows)),
        scored_rows=batch.input_ids[:0],
        query_lens=lens,
        row_offsets=tuple(accumulate(lens, initial=0))[:-1],
        scored_offsets=(0,) * len(spans),
        num_rows=sum(lens),
        num_scored=0,
    )
    return SubBatch(part, rows)


def slice_span(span: Span, begin: int, end: int) -> Span:
    """Rows [begin, end) of the span. A draft is never cut: its tokens are all at generated positions."""
    if (begin, end) == (0, span.length):
        return span
    drafted = span.drafted if end == span.length else 0
    return msgspec.structs.replace(
        span,
        start=span.start + begin,
        length=end - begin,
        drafted=drafted,
        scored=0,
        draft=span.draft if drafted else None,
    )


def row_index(ranges: Sequence[range], batch: Batch) -> slice | Tensor:
    """All rows of the ranges: a slice where they are contiguous."""
    if all(before.stop == after.start for before, after in pairwise(ranges)):
        return slice(ranges[0].start, ranges[-1].stop)
    return to_device([row for each in ranges for row in each], batch.input_ids.device)
