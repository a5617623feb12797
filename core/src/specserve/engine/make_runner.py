"""Builds the runner: with graphs, where the configuration wants any."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from specserve.config import parse_bytes
from specserve.draft_models.recorded_pass import DraftGraphMaker, DraftGraphs
from specserve.engine.graph_runner import MODES, GraphRunner, GraphSettings, StepKey
from specserve.engine.runner import Runner
from specserve.engine.size_cache import free_memory
from specserve.errors import ConfigError
from specserve.graphs.buckets import Buckets, doubling, row_buckets
from specserve.graphs.eligibility import Answers, Eligibility, checked_reason
from specserve.graphs.library import GraphLibrary
from specserve.graphs.memory import GraphMemory, RowSizes
from specserve.graphs.reference_recorder import ReferenceRecorder

if TYPE_CHECKING:
    from collections import Counter

    from specserve.config import EngineConfig
    from specserve.draft_models.recorded_pass import DraftKey
    from specserve.engine.runner import StepParts
    from specserve.models.decoder import DecoderModel
    from specserve.plugins.host import PluginHost
    from specserve.protocols import GraphMode, GraphShape, GreedySampler, Phase, Recorder, Sampler
    from specserve.types import GraphUse

SHARE_OF_FREE_MEMORY = 0.1


def make_runner(config: EngineConfig, host: PluginHost, parts: StepParts, sampler: Sampler, *, drafts: bool) -> Runner:
    """`drafts`: is a drafter enabled? Raises ConfigError where memory is too small for graphs."""
    if config.graphs == "none":
        return Runner(parts)
    most_bytes = graph_bytes(config)
    rows = choose_buckets(config, parts.model, most_bytes)
    generated: Phase = "verify" if drafts else "decode"
    settings = GraphSettings(
        cast("GraphMode", config.graphs),
        rows,
        doubling(config.max_num_seqs),
        config.max_num_batched_tokens,
        generated,
        greedy_sampler(sampler),
        config.block_size,
    )
    sizes = row_sizes(parts.model, has_logits=config.graphs == "full")
    memory = GraphMemory(rows.largest, sizes, parts.model.dtype, torch.device(config.device))
    library: GraphLibrary[StepKey] = GraphLibrary(make_recorder(config.device), memory, most_bytes, host.faults)
    return GraphRunner(parts, library, Eligibility(lambda shape: ask_plugins(host, shape)), settings)


def draft_graphs_of(runner: Runner, counts: Counter[GraphUse]) -> DraftGraphMaker | None:
    """For the passes of draft models; None where nothing is recorded."""
    if not isinstance(runner, GraphRunner):
        return None
    settings, target, most_rows = runner.settings, runner.library, runner.memory.most_rows

    def make(decoder: DecoderModel) -> DraftGraphs:
        memory = GraphMemory(most_rows, row_sizes(decoder, has_logits=False), decoder.dtype, decoder.device)
        library: GraphLibrary[DraftKey] = GraphLibrary(target.recorder, memory, target.most_bytes, target.faults)
        modes = MODES[settings.mode]
        own = settings.rows, settings.requests, library, runner.eligibility, counts, settings.block_size
        return DraftGraphs(modes, *own)

    return DraftGraphMaker(counts, make)


def make_recorder(device: str) -> Recorder:
    if device != "cuda":
        return ReferenceRecorder()
    from specserve.graphs.cuda_recorder import CudaRecorder  # asks the driver for a pool and a stream

    return CudaRecorder()


def graph_bytes(config: EngineConfig) -> int:
    """How many bytes buffers and recordings may take."""
    if config.graph_memory is not None:
        return parse_bytes(config.graph_memory)
    return int(free_memory(config.device) * SHARE_OF_FREE_MEMORY)


def choose_buckets(config: EngineConfig, model: DecoderModel, most_bytes: int) -> Buckets:
    """The configured ones; by default as many as have buffers in the memory that is allowed."""
    sizes = row_sizes(model, has_logits=config.graphs == "full")
    rows = Buckets(config.graph_buckets or row_buckets(config.max_num_batched_tokens).sizes)
    while (needed := GraphMemory.bytes_for(rows.largest, sizes, model.dtype)) > most_bytes:
        if config.graph_buckets is not None or len(rows.sizes) == 1:
            raise ConfigError(
                f"the buffers of graphs for {rows.largest} rows take {needed} bytes; got room for {most_bytes}. "
                "Give more with --graph-memory, let --graph-buckets end earlier, or pass --graphs none."
            )
        rows = Buckets(rows.sizes[:-1])
    return rows


def row_sizes(model: DecoderModel, *, has_logits: bool) -> RowSizes:
    """`has_logits`: are they computed in full graphs?"""
    vocab = model.vocab_size if has_logits else 0
    return RowSizes(model.hidden_size, model.num_heads, model.num_kv_heads, model.head_dim, vocab)


def greedy_sampler(sampler: Sampler) -> GreedySampler | None:
    return cast("GreedySampler", sampler) if hasattr(sampler, "greedy_tokens") else None


def ask_plugins(host: PluginHost, shape: GraphShape) -> Answers:
    return Answers(*host.try_collect("decline_graph", checked_reason, shape=shape))
