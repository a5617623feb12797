"""Which slots of the KV cache hold the tokens before each row of a batch, along the row's own path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.batch.drafts import ROOT, num_leading, parents_of
from specserve.batch.mixer_inputs import TokenSlots
from specserve.batch.row_tensors import copy_to_device, on_host
from specserve.kv.slots import slot_of, slots_of

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.span import Span
    from specserve.types import Draft

NONE = -1


class PrecedingTokens(TokenSlots):
    """`TokenSlots` of a batch."""

    @classmethod
    def of(cls, batch: Batch, reach: int, device: torch.device) -> PrecedingTokens:
        if batch.preceding is not None:
            return cls(*batch.preceding)
        before = copy_to_device(slots_before(batch, reach), device)
        return cls(batch.slots, before.clamp(min=0), before != NONE)


def slots_before(batch: Batch, reach: int) -> Tensor:
    """[T, reach] int64 in the host's memory: of the tokens before each row on its path, the nearest first; NONE where
    there is none."""
    slots = slots_of_neighbours(batch, reach)
    for span, row in zip(batch.spans, batch.row_offsets, strict=True):
        if span.draft is not None and (span.first_node or num_leading(span.draft) < span.drafted):
            correct_branches(slots[row : row + span.length], span, span.draft, batch.block_size)
    return slots


def slots_of_neighbours(batch: Batch, reach: int) -> Tensor:
    """[T, reach] int64: of the tokens that lie before each row's in its request's blocks, which are those before it on
    its path but for branches of draft trees; NONE where the sequence has not begun."""
    size, table, starts, shifts = batch.block_size, list[int](), list[int](), list[int]()
    for span, row in zip(batch.spans, batch.row_offsets, strict=True):
        first = max(0, span.start - reach) // size
        starts.append(span.start - row)
        shifts.append(len(table) - first)
        table += span.blocks[first : (span.start + span.length - 1) // size + 1]
    of_spans = on_host((*starts, *shifts)).view(2, len(starts))
    of_rows = of_spans.repeat_interleave(on_host(batch.query_lens), 1)
    rows, distances = torch.arange(of_rows.shape[1]), torch.arange(1, reach + 1)
    places = (of_rows[0] + rows)[:, None] - distances
    blocks = on_host(table).take((places.clamp(min=0) // size) + of_rows[1][:, None])
    return torch.where(places < 0, NONE, blocks * size + places % size)


def correct_branches(slots: Tensor, span: Span, draft: Draft, block_size: int) -> None:
    """slots: [rows of the span, reach], right for its committed tokens. Sets those of the draft tokens."""
    reach, end = slots.shape[1], span.start + span.known
    behind = slots_of(span.blocks, range(end - 1, max(end - 1 - reach, -1), -1), block_size)
    root = [*behind, *[NONE] * reach][:reach]  # what is before a child of the last committed token
    found: list[list[int]] = []
    for parent in parents_of(draft):
        path = root if parent == ROOT else [slot_of(span.blocks, end + parent, block_size), *found[parent]]
        found.append(path[:reach])
    slots[span.known :] = torch.tensor(found[span.first_node :], dtype=torch.int64).view(span.drafted, reach)
