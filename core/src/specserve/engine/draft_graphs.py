"""Graphs for the passes of draft models, within the memory of the target's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from specserve.engine.graph_runner import MODES, GraphRunner
from specserve.engine.make_runner import row_sizes
from specserve.graphs.draft_layers import DraftGraphSettings, GraphedLayers
from specserve.graphs.library import GraphLibrary
from specserve.graphs.memory import GraphMemory
from specserve.models.tiled import forward_pass
from specserve.types import GraphUse

if TYPE_CHECKING:
    from specserve.engine.choose_attention import ChosenAttention
    from specserve.engine.runner import Runner
    from specserve.graphs.draft_layers import DraftKey
    from specserve.models.decoder import DecoderModel
    from specserve.protocols import LayersFunction


class EngineDraftGraphs:
    """`specserve.protocols.DraftGraphs` of one drafter, whose layers this attention serves."""

    def __init__(self, target: GraphRunner, attention: ChosenAttention) -> None:
        self.target, self.attention = target, attention
        self.metrics = target.library.metrics

    def record(self, decoder: DecoderModel, function: LayersFunction) -> GraphedLayers:
        target, metrics = self.target, self.metrics
        settings, sizes = target.settings, row_sizes(decoder, has_logits=False)
        memory = GraphMemory(target.memory.max_rows, sizes, decoder.dtype, decoder.device)
        library: GraphLibrary[DraftKey] = GraphLibrary(target.library.budget, memory, metrics)
        graphs = DraftGraphSettings(
            modes=MODES[settings.mode],
            of_attention=self.attention.graphs,
            rows=settings.rows,
            requests=settings.requests,
            library=library,
            eligibility=target.eligibility,
            counts=metrics.graph_draft_passes,
            block_size=settings.block_size,
        )
        make_pass = partial(forward_pass, decoder, target.kernels)
        return GraphedLayers(function, self.attention.backend, make_pass, graphs)

    def count(self, reason: str, num_passes: int = 1) -> None:
        self.metrics.graph_draft_passes[GraphUse("none", reason)] += num_passes


def draft_graphs(runner: Runner, attention: ChosenAttention) -> EngineDraftGraphs | None:
    """None where nothing is recorded."""
    return EngineDraftGraphs(runner, attention) if isinstance(runner, GraphRunner) else None
