"""Builds an engine from a configuration and its plugins, in the order that each part needs.

The model is loaded and adapted first, then drafters state their needs, then the KV cache is sized, when all weights are
in memory, then the parts of the step loop are made. What plugins' hooks return is checked in `roles`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch

from specserve import __version__, tracing
from specserve.batch.builder import BatchBuilder
from specserve.batch.drafts import likeliest_chain
from specserve.engine.admission import EngineLimits
from specserve.engine.choose_attention import ChosenAttention, check_attention_name, choose_attention
from specserve.engine.connect_drafters import DraftTarget, LayeredDrafter, connect_drafters, draft_bytes, find_layered
from specserve.engine.description import describe
from specserve.engine.draft_trace import trace_drafts
from specserve.engine.drafters import OneDrafter, SeveralDrafters
from specserve.engine.drafting import Drafting, NoDraft
from specserve.engine.engine import Engine, EngineParts
from specserve.engine.graph_runner import GraphRunner
from specserve.engine.lack_of_memory import lack_of_memory_told
from specserve.engine.make_runner import make_runner
from specserve.engine.make_tokenizer import check_vocabulary, make_tokenizer
from specserve.engine.measure_costs import CostProbe
from specserve.engine.model_roles import collect_families, collect_formats
from specserve.engine.planning_runtime import EnginePlanningRuntime
from specserve.engine.resolve_config import find_device, resolve_config
from specserve.engine.roles import (
    OwnedKernels,
    make_drafters,
    make_kernels,
    make_lora_planner,
    make_observers,
    make_planner,
    make_processors,
    make_verifier,
    request_checks,
    step_roles,
)
from specserve.engine.runner import StepParts
from specserve.engine.scheduler import Scheduler
from specserve.engine.size_cache import CacheShape, make_cache
from specserve.guards.drafter import GuardedDrafter, unchanged
from specserve.kv.blocks import BlockPool
from specserve.load_progress import ASSEMBLING, DOWNLOADING, PACKING, READING, RECORDING, not_shown
from specserve.memory import keep_freed_memory
from specserve.metrics import EngineMetrics
from specserve.models.loader import ModelLoader
from specserve.models.locate import locate_model, locate_on_disk, locate_target
from specserve.models.read_config import read_config
from specserve.models.weight_files import patterns_of
from specserve.plugins.blame import Blame
from specserve.protocols import Arithmetic
from specserve.sampling.seeds import arrival_seed, random_seed
from specserve.speculation.first_draft import FirstDraft
from specserve.speculation.fixed_width import DRAFT_TOKENS, MAX_DRAFT_BATCH, FixedWidthPlanner
from specserve.struct_tables import build_struct_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.config import EngineConfig
    from specserve.engine.runner import Runner
    from specserve.guards.processor import GuardedProcessor
    from specserve.json_types import JsonObject
    from specserve.kv.cache import KVCache
    from specserve.load_progress import ProgressCallback
    from specserve.models.decoder import DecoderModel
    from specserve.plugins.host import PluginHost
    from specserve.protocols import Drafter, DraftPlanner, KernelSet
    from specserve.text.tokenizer import HfTokenizer
    from specserve.types import Draft


class Assembled(NamedTuple):
    """An engine and the names that describe it."""

    engine: Engine
    config: EngineConfig
    """With every `auto` and None resolved."""
    tokenizer: HfTokenizer
    description: JsonObject


class Components(NamedTuple):
    """What is loaded and sized before the step loop is made of it."""

    config: EngineConfig
    host: PluginHost
    device: torch.device
    tokenizer: HfTokenizer
    kernels: OwnedKernels
    model: DecoderModel
    drafters: list[Drafter]
    layered: list[LayeredDrafter]
    """Those of the drafters that have layers of their own."""
    cache: KVCache
    attention: ChosenAttention


def assemble(config: EngineConfig, host: PluginHost, on_progress: ProgressCallback = not_shown) -> Assembled:
    """Load everything and make the engine. Raises ConfigError and its kind."""
    build_struct_tables()  # of the engine's modules, all imported by now: another engine may be loaded at the same time
    with lack_of_memory_told(config.model, config.device):
        parts = load_components(config, host, on_progress)
        engine = Engine(make_parts(parts))
    if parts.config.graph_warm_up and isinstance(engine.runner, GraphRunner):
        engine.runner.warm_up(partial(on_progress, RECORDING))
    if tracing.DRAFTS.is_on:
        trace_drafts(engine, lambda step: tracing.DRAFTS.event(**step._asdict()))
    build_struct_tables()  # of what plugins imported since
    description = describe(parts.config, host, parts.kernels, parts.attention, parts.drafters, engine)
    return Assembled(engine, parts.config, parts.tokenizer, description)


def load_components(config: EngineConfig, host: PluginHost, on_progress: ProgressCallback) -> Components:
    if locate_on_disk(config.model) is None:
        on_progress(DOWNLOADING, 0, 0)
    formats = collect_formats(config, host)
    path = locate_target(config.model, patterns_of(formats))
    config = msgspec.structs.replace(config, graphs=host.config.graphs)  # what its plugins run with
    families = collect_families(config, host)
    config = resolve_config(config, read_config(path, families).dtype)
    check_attention_name(config, host)
    torch.set_num_threads(config.threads or 1)
    keep_freed_memory()
    device = find_device(config.device)
    tokenizer = make_tokenizer(config, path)
    kernels = make_kernels(config, host)
    model = ModelLoader(families, formats, partial(on_progress, READING)).load(
        path,
        kernels=kernels.kernels,
        dtype=config.dtype,
        device=config.device,
        max_model_len=config.max_model_len,
    )
    config = msgspec.structs.replace(config, max_model_len=model.max_model_len)
    check_vocabulary(config, tokenizer, model.vocab_size)
    host.collect("adapt_model", model=model, config=config)
    pack_weights(model, kernels.kernels, on_progress)
    on_progress(ASSEMBLING, 0, 0)
    drafters = make_drafters(config, host, model)
    attention = choose_attention(config, host, model, drafters)
    layered = find_layered(config, host, drafters)
    cache = make_cache(config, model, CacheShape.of(attention.spec, model.dtype), draft_bytes(config, model, layered))
    chosen = attention.build(cache, device)
    return Components(config, host, device, tokenizer, kernels, model, drafters, layered, cache, chosen)


def pack_weights(model: DecoderModel, kernels: KernelSet, on_progress: ProgressCallback) -> None:
    for number, projection in enumerate(model.projections.values(), 1):
        projection.finalize(kernels)
        on_progress(PACKING, number, len(model.projections))


def make_parts(c: Components) -> EngineParts:
    config, host, tokenizer, cache = c.config, c.host, c.tokenizer, c.cache
    hidden_layers = {layer for drafter in c.drafters for layer in drafter.needs.hidden_layers}
    step = StepParts(c.model, c.kernels.kernels, c.attention.backend, hidden_layers, c.attention.graphs)
    metrics = EngineMetrics(faults=host.faults)
    runner = make_runner(config, host, step, metrics, sampler=c.kernels.sampler, drafts=bool(c.drafters))
    lora = make_lora_planner(config, host)
    builder = BatchBuilder(config.block_size, c.device, lora.plan)
    runtime = planning_runtime(c, runner, builder)
    planner = make_planner(config, host, c.model.vocab_size, cut_of(c), runtime) or fixed_width(config)
    connect_drafters(config, c.layered, DraftTarget(c.model, c.kernels.kernels, cache, planner, runner, metrics))
    verifier = make_verifier(config, host, tokenizer.eos_token_ids, c.kernels.sampler)
    processors = make_processors(config, host, tokenizer.eos_token_ids)
    return EngineParts(
        scheduler=Scheduler(config, BlockPool(cache.num_blocks), planner, metrics, arithmetic_of(c)),
        builder=builder,
        runner=runner,
        verifier=verifier.verifier,
        drafting=make_drafting(c, planner, metrics),
        planner=planner,
        cache=cache,
        processors=processors,
        guarded_observers=make_observers(config, host),
        tokenizer=tokenizer,
        metrics=metrics,
        limits=limits_of(c, processors, serves_adapters=lora.max_adapters is not None),
        max_waiting=config.max_waiting,
        max_adapters=lora.max_adapters,
        draw_seed=random_seed if config.seed is None else partial(arrival_seed, config.seed),
        checks=request_checks(host),
        blame=Blame([*step_roles(c.kernels, c.attention, verifier, lora), *host.roles()], host.packages()),
        check_device=torch.cuda.synchronize if config.device == "cuda" else bool,
    )


def limits_of(c: Components, processors: Sequence[GuardedProcessor], *, serves_adapters: bool) -> EngineLimits:
    cache_tokens = c.cache.num_blocks * c.cache.block_size
    kinds = frozenset(kind for processor in processors for kind in processor.output_kinds)
    return EngineLimits(
        c.model.vocab_size,
        c.model.max_model_len,
        cache_tokens,
        c.tokenizer.eos_token_ids,
        kinds,
        c.config.max_logprobs,
        serves_adapters,
    )


def arithmetic_of(c: Components) -> Arithmetic:
    """The part of the prefix cache's keys that is not tokens: everything that a row's bits depend on."""
    return Arithmetic(*(f"{c.kernels.kernels.name}/{name}/{c.config.dtype}" for name in c.attention.backend.arithmetic))


def cut_of(c: Components) -> Callable[[Draft], Draft | None]:
    """Reduces a valid draft to what the attention backend can verify."""
    return likeliest_chain if c.attention.chains_only else unchanged


def make_drafting(c: Components, planner: DraftPlanner, metrics: EngineMetrics) -> Drafting | NoDraft:
    cut, limit, vocab_size = cut_of(c), c.config.draft_fault_limit, c.model.vocab_size
    guards = [GuardedDrafter(d, metrics, vocab_size=vocab_size, fault_limit=limit, cut=cut) for d in c.drafters]
    for counts in (metrics.draft_tokens_by_drafter, metrics.accepted_tokens_by_drafter):
        counts.update(dict.fromkeys((guard.name for guard in guards), 0))
    if not guards:
        return NoDraft()
    drafters = OneDrafter(*guards) if len(guards) == 1 else SeveralDrafters(guards, planner.composer or FirstDraft())
    return Drafting(drafters, planner, metrics)


def planning_runtime(c: Components, runner: Runner, builder: BatchBuilder) -> EnginePlanningRuntime:
    wait = torch.cuda.synchronize if c.config.device == "cuda" else lambda: None
    probe = CostProbe(runner, builder, c.cache.num_blocks, c.config.max_num_batched_tokens, wait)
    names = tuple(drafter.name for drafter in c.drafters)
    return EnginePlanningRuntime(probe, names, cost_factors(c))


def cost_factors(c: Components) -> dict[str, str]:
    """What of the configuration changes the time that a step takes."""
    config = c.config
    return {
        "specserve": __version__,
        "model": str(locate_model(config.model)),
        "dtype": str(config.dtype),
        "kernels": f"{c.kernels.kernels.name} of {c.kernels.owner}",
        "attention": c.attention.description,
        "graphs": str(config.graphs),
        "graph_buckets": str(config.graph_buckets),
        "block_size": str(config.block_size),
        "max_num_batched_tokens": str(config.max_num_batched_tokens),
    }


def fixed_width(config: EngineConfig) -> FixedWidthPlanner:
    """The engine's own planner."""
    width = DRAFT_TOKENS if config.draft_tokens is None else config.draft_tokens
    batch = MAX_DRAFT_BATCH if config.max_draft_batch is None else config.max_draft_batch
    return FixedWidthPlanner(min(width, config.max_draft_tokens), batch)
