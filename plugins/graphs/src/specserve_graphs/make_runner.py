"""Makes the runner: which rows steps are padded to, and how much memory their buffers take."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from specserve.api import ConfigError, parse_bytes
from specserve_graphs.buckets import Buckets, doubling, row_buckets
from specserve_graphs.eligibility import Eligibility
from specserve_graphs.graph_runner import GraphRunner
from specserve_graphs.library import GraphBudget, GraphLibrary
from specserve_graphs.memory import GraphMemory, RowSizes, row_sizes
from specserve_graphs.reference_recorder import ReferenceRecorder
from specserve_graphs.settings import GraphSettings, StepKey

if TYPE_CHECKING:
    from specserve.api import EngineConfig, GraphMode, Recorder
    from specserve.api.graphs import RunnerParts

SHARE_OF_FREE_MEMORY = 0.1


def make_graph_runner(config: EngineConfig, parts: RunnerParts) -> GraphRunner:
    """Raises ConfigError where memory is too small for graphs."""
    step, drafts = parts.step, parts.generated == "verify"
    has_logits = config.graphs == "full" and "full" in step.graphs
    model = step.model
    sizes, max_bytes = row_sizes(model, has_logits=has_logits), graph_bytes(config, parts)
    rows = choose_buckets(config, sizes, model.dtype, max_bytes)
    settings = GraphSettings(
        mode=cast("GraphMode", config.graphs),
        rows=rows,
        requests=doubling(config.max_num_seqs),
        max_rows=config.max_num_batched_tokens,
        max_rows_of_request=1 + (config.max_draft_tokens if drafts else 0),
        generated=parts.generated,
        greedy_sampler=parts.sampler if parts.sampler.records_greedy else None,
        block_size=config.block_size,
    )
    memory = GraphMemory(rows.largest, sizes, model.dtype, torch.device(config.device))
    budget = GraphBudget(parts.make_recorder() or own_recorder(config), max_bytes)
    library: GraphLibrary[StepKey] = GraphLibrary(budget, memory, parts.metrics)
    return GraphRunner(step, library, Eligibility(parts.declines), settings)


def own_recorder(config: EngineConfig) -> Recorder:
    if config.device == "cpu":
        return ReferenceRecorder()
    raise ConfigError(
        f"--graphs {config.graphs}: no enabled plugin records graphs on --device {config.device}. "
        "Pass --graphs none, or enable one that does."
    )


def graph_bytes(config: EngineConfig, parts: RunnerParts) -> int:
    """How many bytes buffers and recordings may take."""
    if config.graph_memory is not None:
        return parse_bytes(config.graph_memory)
    return int(parts.free_memory() * SHARE_OF_FREE_MEMORY)


def choose_buckets(config: EngineConfig, sizes: RowSizes, dtype: torch.dtype, max_bytes: int) -> Buckets:
    """The configured ones; by default as many as have buffers in half of the memory, so that there is room for what is
    recorded."""
    given = config.graph_buckets
    rows = Buckets(given or row_buckets(config.max_num_batched_tokens).sizes)
    allowed = max_bytes if given is not None else max_bytes // 2
    while (needed := GraphMemory.bytes_for(rows.largest, sizes, dtype)) > allowed:
        if given is not None or len(rows.sizes) == 1:
            raise ConfigError(
                f"the buffers of graphs for {rows.largest} rows take {needed} bytes; got room for {allowed}. "
                "Give more with --graph-memory, let --graph-buckets end earlier, or pass --graphs none."
            )
        rows = Buckets(rows.sizes[:-1])
    return rows
