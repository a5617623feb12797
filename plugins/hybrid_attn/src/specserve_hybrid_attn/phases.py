"""Which rows of a batch belong to the prompt and which were generated: the one place that splits a batch by phase.

A position's phase never changes: below `prompt_len` it is the prompt's, in a recomputation too. How many rows a request
has in this step, and how many of them are guesses, plays no part.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.batch.builder import to_device

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.span import Span


class Part(NamedTuple):
    """Some rows of a batch as a batch of their own; `rows` says which: a slice, or [n] int64 in rising order."""

    batch: Batch
    rows: slice | Tensor


def num_prompt_rows(span: Span) -> int:
    """How many leading rows of the span lie in its prompt."""
    return min(max(span.request.prompt_len - span.start, 0), span.length)


def is_prompt_only(batch: Batch) -> bool:
    return all(span.start + span.length <= span.request.prompt_len for span in batch.spans)


def is_generated_only(batch: Batch) -> bool:
    return all(span.start >= span.request.prompt_len for span in batch.spans)


def prompt_part(batch: Batch) -> Part:
    return part_of(batch, lambda span: (0, num_prompt_rows(span)))


def generated_part(batch: Batch) -> Part:
    return part_of(batch, lambda span: (num_prompt_rows(span), span.length))


def part_of(batch: Batch, rows_of: Callable[[Span], tuple[int, int]]) -> Part:
    """Of every span the rows [begin, end) that `rows_of` names; nothing of it is scored here."""
    spans, ranges = [], []
    for span, offset in zip(batch.spans, batch.row_offsets, strict=True):
        begin, end = rows_of(span)
        if begin < end:
            spans.append(cut(span, begin, end))
            ranges.append(range(offset + begin, offset + end))
    lens = tuple(map(len, ranges))
    rows = joined(ranges, batch)
    part = msgspec.structs.replace(
        batch,
        spans=tuple(spans),
        input_ids=batch.input_ids[rows],
        positions=batch.positions[rows],
        slots=batch.slots[rows],
        scored_rows=batch.input_ids[:0],
        query_lens=lens,
        row_offsets=tuple(accumulate(lens, initial=0))[:-1],
        scored_offsets=(0,) * len(spans),
        num_rows=sum(lens),
        num_scored=0,
    )
    return Part(part, rows)


def cut(span: Span, begin: int, end: int) -> Span:
    """Rows [begin, end) of the span. Guesses follow the prompt, so they stay together."""
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


def joined(ranges: Sequence[range], batch: Batch) -> slice | Tensor:
    """All rows of the ranges: a slice where they follow each other."""
    if all(before.stop == after.start for before, after in pairwise(ranges)):
        return slice(ranges[0].start, ranges[-1].stop)
    return to_device([row for each in ranges for row in each], batch.input_ids.device)
