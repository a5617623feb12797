"""Adapters on all ranks: each has its rows or columns of every low-rank part, under a number that rank 0 gives.

A part's outputs are cut as the projection's are. Where a projection's inputs are divided, so are those of `down`, and
the ranks' sum adds up the additions, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from specserve.api import LowRankPart
from specserve.api.batch import LoraPlan, Segment
from specserve_tensor_parallel.messages import SentPart, SentTensor
from specserve_tensor_parallel.shares import FUSED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

    from specserve.api import AdapterWeights
    from specserve_tensor_parallel.messages import SentSegment
    from specserve_tensor_parallel.shares import Shares

BASE_MODEL = -1
"""The number of rows without an adapter."""


def cut_adapter(weights: AdapterWeights, shares: Shares) -> dict[str, tuple[LowRankPart, ...]]:
    """A rank's part of an adapter for the whole model."""
    return {
        name: tuple(own for part in parts for own in cut_part(name, part, shares)) for name, parts in weights.items()
    }


def cut_part(projection: str, part: LowRankPart, shares: Shares) -> Iterator[LowRankPart]:
    """One for each of the checkpoint's maps whose outputs the part changes."""
    own, columns = projection.rpartition(".")[2], shares.cuts(projection).columns
    if own in columns:
        yield part._replace(down=part.down[:, columns[own]].contiguous())
    elif own in FUSED:
        for rows, outs in shares.outputs(projection, part.outs):
            yield LowRankPart(part.down, part.up[rows].contiguous(), outs)
    else:
        yield part


def sent(weights: AdapterWeights) -> dict[str, list[SentPart]]:
    return {
        name: [SentPart(sent_tensor(down), sent_tensor(up), outs.start, outs.stop) for down, up, outs in parts]
        for name, parts in weights.items()
    }


def sent_tensor(x: Tensor) -> SentTensor:
    name = str(x.dtype).removeprefix("torch.")
    return SentTensor(name, list(x.shape), x.cpu().contiguous().view(torch.uint8).numpy().tobytes())


def received(weights: Mapping[str, Sequence[SentPart]], device: torch.device) -> dict[str, tuple[LowRankPart, ...]]:
    return {
        name: tuple(
            LowRankPart(tensor_of(part.down, device), tensor_of(part.up, device), slice(part.begin, part.end))
            for part in parts
        )
        for name, parts in weights.items()
    }


def tensor_of(x: SentTensor, device: torch.device) -> Tensor:
    return torch.frombuffer(bytearray(x.data), dtype=getattr(torch, x.dtype)).view(x.shape).to(device)


class NumberedAdapters:
    """Rank 0's: which number an adapter has, by the object that its kernels read. Any thread may ask."""

    def __init__(self) -> None:
        self.next = 0
        self.numbers: dict[int, int] = {}
        """By id; an adapter is in use until it is forgotten."""

    def reserve(self) -> int:
        self.next += 1
        return self.next

    def forget(self, packed: object) -> int:
        return self.numbers.pop(id(packed))

    def segments(self, plan: LoraPlan) -> list[SentSegment]:
        return [
            (begin, end, BASE_MODEL if adapter is None else self.numbers[id(adapter)])
            for begin, end, adapter in plan.segments
        ]


def plan_of(segments: Sequence[SentSegment], rank: int, adapters: Mapping[int, Any]) -> LoraPlan:
    """rank: the highest of the adapters."""
    found = [Segment(begin, end, None if number == BASE_MODEL else adapters[number]) for begin, end, number in segments]
    return LoraPlan(found, rank)
