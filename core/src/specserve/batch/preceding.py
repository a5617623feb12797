"""Which slots of the KV cache hold the tokens before each row of a batch, along the row's own path."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.drafts import ROOT, parents_of
from specserve.batch.row_tensors import to_device
from specserve.kv.slots import slot_of, slots_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.span import Span

NONE = -1


class PrecedingTokens(NamedTuple):
    """T: the batch's rows."""

    own: Tensor
    """[T] int64: the slot of each row."""
    before: Tensor
    """[T, reach] int64: the slots of the tokens before it, the nearest first; slot 0 stands in where there is none."""
    exists: Tensor
    """[T, reach] bool."""

    @classmethod
    def of(cls, batch: Batch, reach: int, device: torch.device) -> PrecedingTokens:
        rows = [slots for span in batch.spans for slots in slots_before(span, reach, batch.block_size)]
        before = to_device(rows, device).view(len(rows), reach)
        return cls(batch.slots, before.clamp(min=0), before != NONE)


def slots_before(span: Span, reach: int, block_size: int) -> list[list[int]]:
    """For each row of the span, the slots of the `reach` tokens before it; NONE where the sequence has not begun."""
    end = span.start + span.known
    first = max(0, span.start - 1 - reach)
    track = slots_of(span.blocks, range(end - 1, first - 1, -1), block_size) + [NONE] * (reach + 1)
    rows = [track[i : i + reach] for i in range(span.known, 0, -1)]  # the last committed token is track[0]
    if span.draft is None:
        return rows
    of_root, of_nodes = track[1 : 1 + reach], list[list[int]]()
    for parent in parents_of(span.draft):
        of_parent = of_root if parent == ROOT else of_nodes[parent]
        nearest = slot_of(span.blocks, end + parent, block_size)  # the root is the last committed token
        of_nodes.append([nearest, *of_parent][:reach])
    return rows + of_nodes[span.first_node :]
