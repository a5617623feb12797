"""The hooks of tensor_parallel. torch.distributed is imported where there is more than one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import hookimpl
from specserve_tensor_parallel.options import TensorParallelOptions

if TYPE_CHECKING:
    from specserve.api import EngineConfig
    from specserve.api.graphs import Runner, RunnerParts
    from specserve.api.models import ModelPart
    from specserve_tensor_parallel.leading import LeadingPart


class TensorParallel:
    """One per engine: its runner speaks to the ranks that its part of the model started."""

    def __init__(self) -> None:
        self.part: LeadingPart | None = None
        """None with one rank."""

    @hookimpl
    def plugin_options(self) -> type[TensorParallelOptions]:
        return TensorParallelOptions

    @hookimpl
    def make_model_part(self, config: EngineConfig, options: TensorParallelOptions) -> ModelPart | None:
        if options.ranks == 1:
            return None
        from specserve_tensor_parallel.leading import LeadingPart

        self.part = LeadingPart(config, options.ranks)
        return self.part

    @hookimpl
    def make_runner(self, parts: RunnerParts) -> Runner | None:
        if self.part is None:
            return None
        from specserve_tensor_parallel.runner import RankRunner

        return RankRunner(parts, self.part)
