"""Graphs for the passes of draft models, within the memory of the target's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from specserve.api import GraphUse
from specserve.api.models import forward_pass
from specserve_graphs.draft_layers import DraftGraphSettings, GraphedLayers
from specserve_graphs.library import GraphLibrary
from specserve_graphs.memory import GraphMemory, row_sizes
from specserve_graphs.mixer_inputs import MixerInputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import AttentionBackend, GraphMode, KernelSet, LayersFunction
    from specserve.api.graphs import EngineMetrics
    from specserve.api.models import DecoderModel
    from specserve_graphs.buckets import Buckets
    from specserve_graphs.draft_layers import DraftKey
    from specserve_graphs.eligibility import Eligibility
    from specserve_graphs.library import GraphBudget


class TargetGraphs(NamedTuple):
    """What draft models share with the target. `modes`: what passes are tried with, in this order."""

    modes: tuple[GraphMode, ...]
    rows: Buckets
    requests: Buckets
    block_size: int
    budget: GraphBudget
    eligibility: Eligibility
    kernels: KernelSet
    metrics: EngineMetrics


class RunnerDraftGraphs:
    """`specserve.api.DraftGraphs` of one drafter, whose layers this attention serves with these graphs."""

    def __init__(self, target: TargetGraphs, attention: AttentionBackend, served: Sequence[GraphMode]) -> None:
        self.target, self.attention, self.served = target, attention, tuple(served)

    def record(self, decoder: DecoderModel, function: LayersFunction) -> GraphedLayers:
        target = self.target
        sizes = row_sizes(decoder, has_logits=False)
        memory = GraphMemory(target.rows.largest, sizes, decoder.dtype, decoder.device)
        library: GraphLibrary[DraftKey] = GraphLibrary(target.budget, memory, target.metrics)
        graphs = DraftGraphSettings(
            modes=target.modes,
            of_attention=self.served,
            rows=target.rows,
            requests=target.requests,
            library=library,
            eligibility=target.eligibility,
            counts=target.metrics.graph_draft_passes,
            block_size=target.block_size,
        )
        make_pass = partial(forward_pass, decoder, target.kernels)
        inputs = MixerInputs(decoder, target.kernels, memory, again=target.budget.recorder.calls_again)
        return GraphedLayers(function, self.attention, make_pass, graphs, inputs)

    def count(self, reason: str, num_passes: int = 1) -> None:
        self.target.metrics.graph_draft_passes[GraphUse("none", reason)] += num_passes
