"""Builds the runner: with graphs, where the configuration wants any."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from specserve.config import parse_bytes
from specserve.engine.graph_runner import GraphRunner, GraphSettings, StepKey
from specserve.engine.roles import make_recorder
from specserve.engine.runner import Runner
from specserve.engine.size_cache import free_memory
from specserve.errors import ConfigError
from specserve.faults import FAULTS
from specserve.graphs.buckets import Buckets, doubling, row_buckets
from specserve.graphs.eligibility import Answers, Eligibility, checked_reason
from specserve.graphs.library import GraphBudget, GraphLibrary
from specserve.graphs.memory import GraphMemory, RowSizes
from specserve.plugins.loaded_plugin import cause_of

if TYPE_CHECKING:
    from specserve.config import EngineConfig
    from specserve.engine.runner import StepParts
    from specserve.metrics import EngineMetrics
    from specserve.models.decoder import DecoderModel
    from specserve.plugins.host import PluginHost
    from specserve.protocols import GraphMode, GraphShape, Phase, Sampler

SHARE_OF_FREE_MEMORY = 0.1


def make_runner(
    config: EngineConfig, host: PluginHost, parts: StepParts, metrics: EngineMetrics, *, sampler: Sampler, drafts: bool
) -> Runner:
    """`drafts`: is a drafter enabled? Raises ConfigError where memory is too small for graphs."""
    if config.graphs == "none":
        return Runner(parts)
    model, has_logits = parts.model, config.graphs == "full" and "full" in parts.graphs
    sizes, max_bytes = row_sizes(model, has_logits=has_logits), graph_bytes(config)
    rows = choose_buckets(config, sizes, model.dtype, max_bytes)
    generated: Phase = "verify" if drafts else "decode"
    settings = GraphSettings(
        mode=cast("GraphMode", config.graphs),
        rows=rows,
        requests=doubling(config.max_num_seqs),
        max_rows=config.max_num_batched_tokens,
        max_rows_of_request=1 + (config.max_draft_tokens if drafts else 0),
        generated=generated,
        greedy_sampler=sampler if sampler.records_greedy else None,
        block_size=config.block_size,
    )
    memory = GraphMemory(rows.largest, sizes, model.dtype, torch.device(config.device))
    budget = GraphBudget(make_recorder(config, host), max_bytes)
    library: GraphLibrary[StepKey] = GraphLibrary(budget, memory, metrics)
    return GraphRunner(parts, library, Eligibility(lambda shape: ask_plugins(host, shape)), settings)


def graph_bytes(config: EngineConfig) -> int:
    """How many bytes buffers and recordings may take."""
    if config.graph_memory is not None:
        return parse_bytes(config.graph_memory)
    return int(free_memory(config.device) * SHARE_OF_FREE_MEMORY)


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


def row_sizes(model: DecoderModel, *, has_logits: bool) -> RowSizes:
    """`has_logits`: are they computed in full graphs?"""
    vocab = model.vocab_size if has_logits else 0
    return RowSizes(model.hidden_size, model.num_heads, model.num_kv_heads, model.head_dim, vocab)


def ask_plugins(host: PluginHost, shape: GraphShape) -> Answers:
    """No request asks, so that a RequestError is a fault like any other."""
    reasons, failed = [], []
    for plugin in host.implementers["decline_graph"]:
        try:
            reasons += [(plugin.name, checked_reason(answer)) for answer in plugin.call("decline_graph", shape=shape)]
        except FAULTS as error:
            failed.append(plugin.name)
            host.faults.count(plugin.name, "decline_graph", cause_of(error), "; such steps run without graphs")
    return Answers(reasons, failed)
