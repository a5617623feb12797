"""Builds an engine from a configuration and its plugins, in the order that each part needs.

Load, kernels, adapt_model, drafter, KV sized after all weights, attention, planner. What plugins answer is checked in
`roles`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch

from specserve.batch.batch import BatchBuilder
from specserve.batch.drafts import likeliest_chain
from specserve.engine.admission import EngineLimits
from specserve.engine.choose_attention import ChosenAttention, make_attention
from specserve.engine.engine import Engine, EngineParts
from specserve.engine.measure_costs import measure_costs
from specserve.engine.roles import (
    engine_roles,
    make_drafters,
    make_kernels,
    make_lora_planner,
    make_observers,
    make_planner,
    make_processors,
    make_verifier,
    request_checks,
    sampler_of,
)
from specserve.engine.runner import Runner
from specserve.engine.scheduler import Scheduler
from specserve.errors import ConfigError
from specserve.guards.drafter import GuardedDrafter, whole
from specserve.kv.blocks import BlockPool
from specserve.kv.sizing import make_cache
from specserve.memory import keep_freed_memory
from specserve.metrics import EngineMetrics
from specserve.models.config import read_config
from specserve.models.loader import load_model
from specserve.models.locate import locate_model
from specserve.plugins.blame import Blame
from specserve.plugins.load import BUILTIN
from specserve.protocols import Arithmetic
from specserve.speculation.calibration import Calibration
from specserve.speculation.drafting import Drafting, NoDraft
from specserve.speculation.planning import CostPlanner, VerifyAll
from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.config import EngineConfig
    from specserve.kv.cache import KVCache
    from specserve.plugins.host import PluginHost
    from specserve.protocols import (
        AttentionBackend,
        Drafter,
        DraftPlanner,
        KernelSet,
    )

ROW_INVARIANT_DEVICES = ("cpu",)


class Assembled(NamedTuple):
    """An engine and the names that describe it."""

    engine: Engine
    config: EngineConfig
    """With every `auto` and None resolved."""
    tokenizer: HfTokenizer
    description: dict[str, Any]


def assemble(
    config: EngineConfig, host: PluginHost, on_progress: Callable[[int, int], None] | None = None
) -> Assembled:
    """Load everything and make the engine. Raises ConfigError and its kind."""
    path = locate_model(config.model)
    config = resolved(config, read_config(path).dtype)
    torch.set_num_threads(config.threads or 1)
    keep_freed_memory()
    device = pick_device(config.device)
    tokenizer = HfTokenizer.from_dir(path)
    kernels_owner, kernels = make_kernels(config, host)
    model = load_model(
        path,
        kernels=kernels,
        dtype=config.dtype,
        device=config.device,
        max_model_len=config.max_model_len,
        on_progress=on_progress,
    )
    config = msgspec.structs.replace(config, max_model_len=model.max_model_len)
    host.collect("adapt_model", model=model, config=config)
    for projection in model.projections.values():
        projection.seal(kernels.prepare_linear)
    drafters = make_drafters(config, host, model)
    cache = make_cache(config, model, sum(drafter.needs.kv_layers for drafter in drafters))
    attention = make_attention(config, host, model, cache, device, drafters)
    runner = Runner(model, kernels, attention.backend, {layer for d in drafters for layer in d.needs.hidden_layers})
    builder = BatchBuilder(config.block_size, device, make_lora_planner(config, host))
    planner = make_planner(config, host, model.vocab_size) or default_planner(config, drafters, runner, builder, cache)
    arithmetic = arithmetic_of(kernels, attention.backend, config)
    metrics = EngineMetrics(faults=host.faults)
    sampler = sampler_of(kernels_owner, kernels)
    verifier_owner, verifier = make_verifier(config, host, tokenizer.eos_token_ids, sampler)
    cache_tokens = cache.num_blocks * cache.block_size
    limits = EngineLimits(model.vocab_size, model.max_model_len, cache_tokens, tokenizer.eos_token_ids)
    roles = engine_roles(kernels_owner, kernels, attention, verifier_owner, verifier)
    engine = Engine(
        EngineParts(
            scheduler=make_scheduler(config, planner, metrics, cache.num_blocks, arithmetic),
            builder=builder,
            runner=runner,
            verifier=verifier,
            drafting=make_drafting(config, drafters, planner, metrics, model.vocab_size, attention),
            planner=planner,
            cache=cache,
            processors=make_processors(config, host, tokenizer.eos_token_ids),
            watchers=make_observers(config, host),
            tokenizer=tokenizer,
            metrics=metrics,
            limits=limits,
            max_waiting=config.max_waiting,
            checks=request_checks(host),
            blame=Blame([*roles, *host.roles()], host.packages()),
            check_device=torch.cuda.synchronize if config.device == "cuda" else bool,
        )
    )
    description = {
        "model": config.model,
        "kernels": describe_kernels(config, host, kernels_owner, kernels),
        "attention": attention.description,
        "drafters": [drafter.name for drafter in drafters],
        **describe_promises(config, engine, attention),
        "config": config,
    }
    return Assembled(engine, config, tokenizer, description)


def describe_kernels(config: EngineConfig, host: PluginHost, owner: str, kernels: KernelSet) -> str:
    """The set, its owner, and the plugins that have none here: a checkpoint's dtype is known only after they load."""
    guests = [plugin.name for plugin in host.implementers["make_kernels"] if plugin.name not in (BUILTIN, owner)]
    declined = "".join(f"; {name} has none for {config.dtype} on {config.device}" for name in guests)
    return f"{kernels.name} ({owner}{declined})"


def describe_promises(config: EngineConfig, engine: Engine, attention: ChosenAttention) -> dict[str, Any]:
    """What the banner and /v1/plugins say of losslessness and of room."""
    return {
        "verifier": engine.verifier.name,
        "lossless": engine.verifier.lossless,
        "row_invariant": config.device in ROW_INVARIANT_DEVICES and attention.row_invariant,
        "kv_cache_tokens": engine.parts.limits.cache_tokens,
    }


def arithmetic_of(kernels: KernelSet, attention: AttentionBackend, config: EngineConfig) -> Arithmetic:
    """What keys the prefix cache beside tokens: everything that bits depend on."""
    return Arithmetic(*(f"{kernels.name}/{name}/{config.dtype}" for name in attention.arithmetic))


def make_scheduler(
    config: EngineConfig,
    planner: DraftPlanner,
    metrics: EngineMetrics,
    num_blocks: int,
    arithmetic: Arithmetic,
) -> Scheduler:
    return Scheduler(
        pool=BlockPool(num_blocks),
        block_size=config.block_size,
        planner=planner,
        metrics=metrics,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        chunked_prefill=config.chunked_prefill,
        prefix_cache=config.prefix_cache,
        arithmetic=arithmetic,
    )


def resolved(config: EngineConfig, model_dtype: str) -> EngineConfig:
    """Every `auto` settled."""
    if config.graphs != "none":
        raise ConfigError(f"--graphs {config.graphs}: this version records no graphs yet. Use --graphs none.")
    threads = config.threads or usable_cores()
    dtype = model_dtype if config.dtype == "auto" else config.dtype
    return msgspec.structs.replace(config, threads=threads, dtype=dtype)


def usable_cores() -> int:
    """Cores this process may run on, where the system tells; else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pick_device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch sees no CUDA device here. Use --device cpu, or install a CUDA build.")
    return torch.device(name)


def make_drafting(
    config: EngineConfig,
    drafters: list[Drafter],
    planner: DraftPlanner,
    metrics: EngineMetrics,
    vocab_size: int,
    attention: ChosenAttention,
) -> Drafting | NoDraft:
    cut = likeliest_chain if attention.chains_only else whole
    limit = config.draft_fault_limit
    guards = [GuardedDrafter(d, metrics, vocab_size=vocab_size, fault_limit=limit, cut=cut) for d in drafters]
    return Drafting(guards, planner) if guards else NoDraft()


def default_planner(
    config: EngineConfig, drafters: list[Drafter], runner: Runner, builder: BatchBuilder, cache: KVCache
) -> DraftPlanner:
    if not drafters:
        return VerifyAll(0)
    costs = measure_costs(
        runner,
        builder,
        num_blocks=cache.num_blocks,
        most_rows=config.max_num_batched_tokens,
        wait=torch.cuda.synchronize if config.device == "cuda" else lambda: None,
    )
    return CostPlanner(config.max_draft_tokens, costs, Calibration())
