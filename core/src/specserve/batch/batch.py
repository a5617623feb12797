"""The rows of one forward pass, and the one place that says how many query tokens each request has.

A `Batch` is born complete from spans whose KV blocks are allocated. Attention, LoRA planning, graph shapes
and memory read query lengths here and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from specserve.batch.drafts import depths_of, is_chain
from specserve.batch.lora_plan import LoraPlan
from specserve.batch.span import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Batch(msgspec.Struct, frozen=True, eq=False):
    """spans in row order; rows of a span are contiguous: its committed tokens, then its guesses in node order."""

    spans: tuple[Span, ...]
    input_ids: Tensor
    """[T] int64."""
    positions: Tensor
    """[T] int64: a guess at depth d of a request with n committed tokens has position n - 1 + d."""
    slots: Tensor
    """[T] int64: where each row's KV goes; guess j of a request goes to slot n + j of its blocks."""
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
    lora: LoraPlan | None = None
    """None: every row is the base model's."""


def no_lora(batch: Batch) -> None:
    """No adapters: the plan of every batch is None."""


class BatchBuilder:
    """Lays spans out as rows."""

    def __init__(
        self, block_size: int, device: torch.device, plan_lora: Callable[[Batch], LoraPlan | None] = no_lora
    ) -> None:
        self.block_size = block_size
        self.device = device
        self.plan_lora = plan_lora

    def build(self, spans: Sequence[Span]) -> Batch:
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        scored: list[int] = []
        row_offsets: list[int] = []
        scored_offsets: list[int] = []
        size = self.block_size
        for span in spans:
            request, start, length = span.request, span.start, span.length
            row_offsets.append(len(ids))
            scored_offsets.append(len(scored))
            blocks = request.blocks
            if length == 1:  # plain decoding: the case that must be quick
                ids.append(request.tokens[start])
                positions.append(start)
                slots.append(blocks[start // size] * size + start % size)
            else:
                known = length - span.drafted
                ids += request.tokens[start : start + known]
                positions += range(start, start + known)
                if span.draft is not None:
                    ids += span.draft.tokens
                    end = start + known
                    positions += (
                        [end - 1 + d for d in depths_of(span.draft)]
                        if not is_chain(span.draft)
                        else range(end, end + span.drafted)
                    )
                slots += [blocks[p // size] * size + p % size for p in range(start, start + length)]
            if span.scored:
                scored += range(len(ids) - span.scored, len(ids))
        num_rows, num_scored = len(ids), len(scored)
        input_ids, positions_of, slots_of = to_device([ids, positions, slots], self.device).unbind()
        everything = num_scored == num_rows
        batch = Batch(
            spans=tuple(spans),
            input_ids=input_ids,
            positions=positions_of,
            slots=slots_of,
            scored_rows=None if everything else to_device(scored, self.device),
            query_lens=tuple(span.length for span in spans),
            row_offsets=tuple(row_offsets),
            scored_offsets=tuple(scored_offsets),
            num_rows=num_rows,
            num_scored=num_scored,
            block_size=self.block_size,
        )
        lora = self.plan_lora(batch)
        return batch if lora is None else msgspec.structs.replace(batch, lora=lora)


def to_device(values: Sequence[int] | Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Integers as an int64 tensor on the device; on CUDA the copy is queued and the host does not wait.

    torch's pinned allocator notes the stream of such a copy and gives the buffer out again only after it, so any
    number may be in flight: a prompt's chunks are launched one after the other without a verdict between them.
    """
    if device.type != "cuda":
        return torch.tensor(values, dtype=torch.int64)
    return torch.tensor(values, dtype=torch.int64, pin_memory=True).to(device, non_blocking=True)
