"""From spans to the rows of one forward pass."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

import msgspec

from specserve.batch.batch import Batch, ScheduledBatch
from specserve.batch.drafts import depths_of, is_chain
from specserve.batch.row_tensors import RowTensors, on_host, to_device
from specserve.kv.slots import slot_of, slots_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch
    from torch import Tensor

    from specserve.batch.lora_plan import LoraPlan
    from specserve.batch.span import ScheduledSpan, Span

B = TypeVar("B", bound=Batch)


def no_lora(batch: Batch) -> None:
    """No adapters: every batch is the base model's."""


class BatchBuilder:
    """Lays spans out as rows. `plan_lora` plans the adapters of a batch."""

    def __init__(
        self, block_size: int, device: torch.device, plan_lora: Callable[[Batch], LoraPlan | None] = no_lora
    ) -> None:
        self.block_size, self.device, self.plan_lora = block_size, device, plan_lora

    def schedule(self, spans: Sequence[ScheduledSpan]) -> ScheduledBatch:
        """The target's next batch."""
        return self.with_rows(ScheduledBatch, spans, self.rows_of(spans, [span.request.tokens for span in spans]))

    def build(self, spans: Sequence[Span], tokens: Sequence[Sequence[int]]) -> Batch:
        """A batch of other sequences. tokens: the committed tokens of each span's."""
        return self.with_rows(Batch, spans, self.rows_of(spans, tokens))

    def rows_of(self, spans: Sequence[Span], tokens: Sequence[Sequence[int]]) -> Tensor:
        """[3, T] int64: token ids, positions and slots, in the host's memory."""
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        size = self.block_size
        for span, committed in zip(spans, tokens, strict=True):
            start, length, blocks = span.start, span.length, span.blocks
            draft = span.draft
            if length == 1 and (draft is None or draft.parents is None):  # plain decoding: the most frequent case
                ids.append(committed[start] if draft is None else draft.tokens[0])
                positions.append(start)
                slots.append(slot_of(blocks, start, size))
            else:
                ids += tokens_of(span, committed)
                positions += positions_of(span)
                first = start + span.first_node
                slots += slots_of(blocks, range(first, first + length), size)
        return on_host(ids + positions + slots).view(3, len(ids))

    def with_rows(self, kind: type[B], spans: Sequence[Span], rows: Tensor) -> B:
        """The batch of these spans whose rows are laid out already. rows: as `rows_of` gives them."""
        lengths, scored = [span.length for span in spans], [span.scored for span in spans]
        *row_offsets, num_rows = accumulate(lengths, initial=0)
        *scored_offsets, num_scored = accumulate(scored, initial=0)
        scored_rows = None
        if num_scored != num_rows:
            ends = zip(row_offsets, lengths, scored, strict=True)
            indices = [row for first, n, count in ends for row in range(first + n - count, first + n)]
            scored_rows = to_device(indices, self.device)
        batch = kind(
            spans=tuple(spans),
            rows=RowTensors(rows, self.device),
            scored_rows=scored_rows,
            query_lens=tuple(lengths),
            row_offsets=tuple(row_offsets),
            scored_offsets=tuple(scored_offsets),
            num_rows=num_rows,
            num_scored=num_scored,
            block_size=self.block_size,
        )
        lora = self.plan_lora(batch)
        return batch if lora is None else msgspec.structs.replace(batch, lora=lora)


def tokens_of(span: Span, committed: Sequence[int]) -> Sequence[int]:
    """The committed tokens of a span, then its draft tokens."""
    tokens = committed[span.start : span.start + span.known]
    return tokens if span.draft is None else [*tokens, *span.draft.tokens[span.first_node :]]


def positions_of(span: Span) -> Iterable[int]:
    """A draft token at depth d behind n committed tokens has position n - 1 + d."""
    if is_chain(span.draft) or span.draft is None:
        first = span.start + span.first_node
        return range(first, first + span.length)
    end = span.start + span.known
    return [*range(span.start, end), *(end - 1 + depth for depth in depths_of(span.draft)[span.first_node :])]
