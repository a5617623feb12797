"""A part of a batch: some of its spans, as a batch of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.batch import Batch
from specserve.batch.builder import BatchBuilder
from specserve.batch.row_tensors import RowTensors, on_host

if TYPE_CHECKING:
    from collections.abc import Sequence


def rows_of_spans(batch: Batch, spans: Sequence[int]) -> list[int]:
    """The rows of these spans, in their order."""
    firsts, sizes = batch.row_offsets, batch.query_lens
    return [row for i in spans for row in range(firsts[i], firsts[i] + sizes[i])]


def part_of(batch: Batch, spans: Sequence[int]) -> Batch:
    """These spans of a batch that was built from spans, without adapters."""
    assert isinstance(batch.rows, RowTensors), "built from spans"
    assert batch.lora is None, "passes of draft models have no adapters"
    rows = batch.host_rows.index_select(1, on_host(rows_of_spans(batch, spans)))
    return BatchBuilder(batch.block_size, batch.rows.device).with_rows(Batch, [batch.spans[i] for i in spans], rows)
