"""From spans to the rows of one forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.batch.batch import Batch
from specserve.batch.drafts import depths_of, is_chain
from specserve.batch.row_tensors import RowTensors, on_host, to_device
from specserve.kv.slots import slot_of, slots_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch

    from specserve.batch.lora_plan import LoraPlan
    from specserve.batch.span import Span


def no_lora(batch: Batch) -> None:
    """No adapters: every batch is the base model's."""


class BatchBuilder:
    """Lays spans out as rows. `plan_lora` plans the adapters of a batch."""

    def __init__(
        self, block_size: int, device: torch.device, plan_lora: Callable[[Batch], LoraPlan | None] = no_lora
    ) -> None:
        self.block_size, self.device, self.plan_lora = block_size, device, plan_lora

    def build(self, spans: Sequence[Span]) -> Batch:
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        scored: list[int] = []
        row_offsets: list[int] = []
        scored_offsets: list[int] = []
        size = self.block_size
        for span in spans:
            row_offsets.append(len(ids))
            scored_offsets.append(len(scored))
            start, length, blocks = span.start, span.length, span.request.blocks
            draft = span.draft
            if length == 1 and (draft is None or draft.parents is None):  # plain decoding: the most frequent case
                ids.append(span.request.tokens[start] if draft is None else draft.tokens[0])
                positions.append(start)
                slots.append(slot_of(blocks, start, size))
            else:
                ids += tokens_of(span)
                positions += positions_of(span)
                first = start + span.first_node
                slots += slots_of(blocks, range(first, first + length), size)
            if span.scored:
                scored += range(len(ids) - span.scored, len(ids))
        num_rows, num_scored = len(ids), len(scored)
        batch = Batch(
            spans=tuple(spans),
            rows=RowTensors(on_host(ids + positions + slots).view(3, num_rows), self.device),
            scored_rows=None if num_scored == num_rows else to_device(scored, self.device),
            query_lens=tuple(span.length for span in spans),
            row_offsets=tuple(row_offsets),
            scored_offsets=tuple(scored_offsets),
            num_rows=num_rows,
            num_scored=num_scored,
            block_size=size,
        )
        lora = self.plan_lora(batch)
        return batch if lora is None else msgspec.structs.replace(batch, lora=lora)


def tokens_of(span: Span) -> list[int]:
    """The committed tokens of a span, then its draft tokens."""
    tokens = span.request.tokens[span.start : span.start + span.known]
    return tokens if span.draft is None else [*tokens, *span.draft.tokens[span.first_node :]]


def positions_of(span: Span) -> Iterable[int]:
    """A draft token at depth d behind n committed tokens has position n - 1 + d."""
    if is_chain(span.draft) or span.draft is None:
        first = span.start + span.first_node
        return range(first, first + span.length)
    end = span.start + span.known
    return [*range(span.start, end), *(end - 1 + depth for depth in depths_of(span.draft)[span.first_node :])]
