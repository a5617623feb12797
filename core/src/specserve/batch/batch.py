"""The rows of one forward pass, and the only source of the number of query tokens of each request.

A `Batch` is complete when it is made, from spans whose KV blocks are allocated. Attention, LoRA planning, graph
shapes and memory read query lengths here and nowhere else.
"""

from __future__ import annotations

import msgspec
from torch import Tensor

from specserve.batch.lora_plan import LoraPlan
from specserve.batch.span import Span


class Batch(msgspec.Struct, frozen=True, eq=False):
    """spans in row order; rows of a span are contiguous: its committed tokens, then its draft tokens in node order."""

    spans: tuple[Span, ...]
    input_ids: Tensor
    """[T] int64."""
    positions: Tensor
    """[T] int64: a draft token at depth d of a request with n committed tokens has position n - 1 + d."""
    slots: Tensor
    """[T] int64: where each row's KV goes; draft token j of a request goes to slot n + j of its blocks."""
    scored_rows: Tensor | None
    """[S] int64 rows that get logits; None when all do."""
    query_lens: tuple[int, ...]
    """Rows of each span."""
    row_offsets: tuple[int, ...]
    """First row of each span."""
    scored_offsets: tuple[int, ...]
    """First row of each span in the logits."""
    num_rows: int
    num_scored: int
    block_size: int
    host_rows: Tensor | None = None
    """[3, T]: input_ids, positions and slots in the host's memory; None in batches that are not to be recorded."""
    lora: LoraPlan | None = None
    """None: every row is the base model's."""

    @property
    def only_decodes(self) -> bool:
        """Whether every request computes one committed token and its draft tokens, as in steady decoding."""
        return self.num_rows == len(self.spans) + sum(span.drafted for span in self.spans)
