"""A runner with graphs around a model that costs nothing: what remains is the graphs' own time on the host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import torch

from specserve.metrics import EngineMetrics
from specserve.models.decoder import DecoderModel
from specserve.models.runner import Runner, StepParts
from specserve.protocols import AttentionBackend, ForwardPass
from specserve_graphs.buckets import doubling, row_buckets
from specserve_graphs.eligibility import Eligibility
from specserve_graphs.graph_runner import GraphRunner
from specserve_graphs.library import GraphBudget, GraphLibrary
from specserve_graphs.memory import GraphMemory, RowSizes
from specserve_graphs.reference_recorder import ReferenceRecorder
from specserve_graphs.settings import GraphSettings, StepKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.protocols import GraphMode, KernelSet

HIDDEN = 16


class NoPlan:
    """`specserve.protocols.GraphPlan`: nothing to load."""

    plan = None

    def clear(self) -> None:
        pass

    def load(self, batch: Batch) -> str:
        return ""


class NoAttention(AttentionBackend):
    """Gives the queries back."""

    name = "none"

    def plan(self, batch: Batch) -> None:
        pass

    def graph_plan(self, padded: Batch, requests: int) -> NoPlan:
        return NoPlan()

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: Any) -> Tensor:
        return q


class NoPass(ForwardPass):
    """The n-th row always gets the n-th row of `table`."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.x = torch.zeros(len(table), HIDDEN)

    def embed(self, batch: Batch) -> Tensor:
        return self.x[: batch.num_rows]

    def layers(
        self, x: Tensor, batch: Batch, plan: Any, taps: Mapping[int, Tensor] = {}, aux: Tensor | None = None
    ) -> Tensor:
        return x

    def logits(self, x: Tensor, batch: Batch) -> Tensor:
        return self.table[: batch.num_scored]


def stub_runner(max_rows: int, vocab_size: int, mode: str) -> Runner:
    """`mode`: none, piecewise or full."""
    table = torch.randn(max_rows, vocab_size, generator=torch.Generator().manual_seed(0))
    model = object.__new__(DecoderModel)  # kernel sets fuse the layers of this class alone
    config = SimpleNamespace(beyond_llama=frozenset())
    vars(model).update(num_layers=1, hidden_size=HIDDEN, projections={}, max_model_len=2**20, config=config)
    kernels = SimpleNamespace(name="none", row_tile=None, fuses=frozenset(), fuse=lambda *_: NoPass(table))
    parts = StepParts(model, cast("KernelSet", kernels), NoAttention())
    if mode == "none":
        return Runner(parts)
    sizes = RowSizes(HIDDEN, 1, 1, HIDDEN, vocab_size)
    memory = GraphMemory(max_rows, sizes, torch.float32, torch.device("cpu"))
    library: GraphLibrary[StepKey] = GraphLibrary(GraphBudget(ReferenceRecorder(), 2**40), memory, EngineMetrics())
    settings = GraphSettings(
        mode=cast("GraphMode", mode), rows=row_buckets(max_rows), requests=doubling(max_rows), max_rows=max_rows,
        max_rows_of_request=1, generated="decode", greedy_sampler=None, block_size=16,
    )  # fmt: skip
    return GraphRunner(parts, library, Eligibility(lambda _: ()), settings)
