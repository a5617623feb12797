"""Builds an engine from a configuration and its plugins, in the order that each part needs.

What is loaded and sized comes first (`components`), then the parts of the step loop are made of it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.builder import BatchBuilder
from specserve.engine.admission import EngineLimits
from specserve.engine.cache_journal import make_journal
from specserve.engine.components import Components, closed_on_failure, load_components
from specserve.engine.connect_drafters import DraftTarget, connect_drafters
from specserve.engine.description import describe
from specserve.engine.engine import Engine, EngineParts
from specserve.engine.lack_of_memory import lack_of_memory_told
from specserve.engine.make_drafting import choose_planner, make_drafting
from specserve.engine.make_runner import make_runner
from specserve.engine.prefix_cache import PrefixCache
from specserve.engine.roles import (
    make_cache_observers,
    make_lora_planner,
    make_observers,
    make_processors,
    make_verifier,
    request_checks,
    step_roles,
)
from specserve.engine.scheduler import Scheduler
from specserve.engine.start_faults import faults_named
from specserve.engine.target_keys import TargetCache, connect_target_keys
from specserve.engine.target_pass import connect_target
from specserve.kv.blocks import BlockPool
from specserve.load_progress import RECORDING, not_shown
from specserve.metrics import EngineMetrics
from specserve.models.runner import StepParts
from specserve.plugins.blame import Blame
from specserve.protocols import Arithmetic
from specserve.sampling.seeds import arrival_seed, random_seed
from specserve_checks.struct_tables import build_struct_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.config import EngineConfig
    from specserve.guards.processor import GuardedProcessor
    from specserve.load_progress import ProgressCallback
    from specserve.plugins.host import PluginHost
    from specserve.text.tokenizer import HfTokenizer
    from specserve_checks.json_types import JsonObject


class Assembled(NamedTuple):
    """An engine and the names that describe it."""

    engine: Engine
    config: EngineConfig
    """With every `auto` and None resolved."""
    tokenizer: HfTokenizer
    description: JsonObject


def assemble(config: EngineConfig, host: PluginHost, on_progress: ProgressCallback = not_shown) -> Assembled:
    """Load everything and make the engine. Raises ConfigError and its kind."""
    build_struct_tables()  # of the engine's modules, all imported by now: another engine may be loaded at the same time
    with lack_of_memory_told(config.model, config.device), faults_named(host):
        parts = load_components(config, host, on_progress)
        with closed_on_failure(parts.model.part):
            engine = Engine(make_parts(parts))
    if parts.config.graph_warm_up:
        engine.runner.warm_up(partial(on_progress, RECORDING))
    build_struct_tables()  # of what plugins imported since
    description = describe(parts.config, host, parts.kernels, parts.attention, parts.drafters, engine)
    return Assembled(engine, parts.config, parts.tokenizer, description)


def make_parts(c: Components) -> EngineParts:
    config, host, tokenizer, cache = c.config, c.host, c.tokenizer, c.cache
    hidden_layers = {layer for drafter in c.drafters for layer in drafter.needs.hidden_layers}
    step = StepParts(c.model, c.kernels.kernels, c.attention.backend, hidden_layers, c.attention.graphs)
    metrics = EngineMetrics(faults=host.faults)
    runner = make_runner(c, step, metrics)
    lora = make_lora_planner(config, host)
    builder = BatchBuilder(config.block_size, c.device, lora.plan)
    planner = choose_planner(c, runner, builder)
    journal = make_journal(config.block_size, make_cache_observers(config, host))

    def forgotten(block_hash: bytes) -> None:
        journal.removed(block_hash)
        c.states.forget(block_hash)

    pool = BlockPool(cache.num_blocks, forgotten)
    connect_drafters(config, c.layered, DraftTarget(cache, planner, runner, pool.match))
    connect_target(config, c.drafters, cache, runner, builder)
    connect_target_keys(c.drafters, TargetCache(c.choice, cache, c.device), planner)
    verifier = make_verifier(config, host, tokenizer.eos_token_ids, c.kernels.sampler)
    processors = make_processors(config, host, tokenizer.eos_token_ids)
    prefix_cache = PrefixCache(pool, config.block_size, arithmetic_of(c), journal, enabled=config.prefix_cache)
    return EngineParts(
        scheduler=Scheduler(config, pool, planner, metrics, prefix_cache, c.states),
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
        cache_journal=journal,
        draw_seed=random_seed if config.seed is None else partial(arrival_seed, config.seed),
        checks=request_checks(host),
        blame=Blame([*step_roles(c.kernels, c.attention, verifier, lora), *host.roles()], host.packages()),
        check_device=runner.check_device,
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
        tuple(drafter.name for drafter in c.drafters),
    )


def arithmetic_of(c: Components) -> Arithmetic:
    """The part of the prefix cache's keys that is not tokens: everything that a row's bits depend on."""
    return Arithmetic(*(f"{c.kernels.kernels.name}/{name}/{c.config.dtype}" for name in c.attention.backend.arithmetic))
