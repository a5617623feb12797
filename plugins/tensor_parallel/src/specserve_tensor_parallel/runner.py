"""Rank 0's runner: each step is sent to the other ranks, then computed with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ConfigError
from specserve.api.graphs import Runner
from specserve.api.models import LowRankDelta
from specserve.api.ranks import send
from specserve_tensor_parallel.messages import AddDeltas, Compute, MoveTokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.api import AdaptableModel, ForwardOutput
    from specserve.api.attention import KVCache
    from specserve.api.batch import Batch
    from specserve.api.graphs import RunnerParts
    from specserve_tensor_parallel.leading import LeadingPart
    from specserve_tensor_parallel.processes import Ranks


class RankRunner(Runner):
    """Made once this rank has loaded. Raises ConfigError where the other ranks have loaded anything else."""

    def __init__(self, parts: RunnerParts, part: LeadingPart) -> None:
        super().__init__(parts.step)
        self.ranks, self.adapters = part.others, part.adapters
        part.check_arithmetic((self.kernels.name, self.attention.name))
        self.ranks.send(AddDeltas(names_with_deltas(parts.step.model)))
        move_everywhere(parts.cache, self.ranks)

    def forward(self, batch: Batch) -> ForwardOutput:
        self.ranks.check()
        lora = batch.lora
        segments = [] if lora is None else self.adapters.segments(lora)
        self.ranks.send(Compute(send(batch), segments, 0 if lora is None else lora.rank))
        try:
            return super().forward(batch)
        except BaseException as error:
            raise self.ranks.out_of_step(error) from error

    def check_device(self) -> None:
        self.ranks.check()
        super().check_device()

    def watch(self, lost: Callable[[], None]) -> None:
        self.ranks.fate.on_loss.append(lost)
        if self.ranks.fate.lost is not None:  # before anybody listened
            lost()


def move_everywhere(cache: KVCache, ranks: Ranks) -> None:
    """From now on, tokens that are moved in the cache are moved on every rank."""
    move = cache.mover

    def move_and_tell(data: Tensor, source: Sequence[int], target: Sequence[int]) -> None:
        ranks.send(MoveTokens(list(source), list(target)))
        move(data, source, target)

    cache.mover = move_and_tell


def names_with_deltas(model: AdaptableModel) -> list[str]:
    """The projections that adapters change. ConfigError for what only this rank would compute."""
    names = []
    for name, projection in model.projections.items():
        kinds = {type(delta) for delta in projection.deltas}
        if kinds - {LowRankDelta}:
            raise ConfigError(
                f"tensor_parallel: a plugin adds to projection {name} what only it can compute "
                f"({', '.join(sorted(kind.__name__ for kind in kinds - {LowRankDelta}))}), and ranks divide the "
                "projection. Remove that plugin, or --plugin tensor_parallel."
            )
        if kinds:
            names.append(name)
    return names
