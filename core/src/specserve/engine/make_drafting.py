"""Who plans drafts and who makes them: a plugin's planner or the engine's own, over the guarded drafters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve import __version__
from specserve.batch.builder import BatchBuilder
from specserve.batch.drafts import likeliest_chain
from specserve.engine.drafters import OneDrafter, SeveralDrafters
from specserve.engine.drafting import Drafting, NoDraft
from specserve.engine.measure_costs import CostProbe
from specserve.engine.planning_runtime import EnginePlanningRuntime
from specserve.engine.roles import (
    make_planner,
)
from specserve.guards.drafter import GuardedDrafter, unchanged
from specserve.models.locate import locate_model
from specserve.speculation.first_draft import FirstDraft
from specserve.speculation.fixed_width import DRAFT_TOKENS, MAX_DRAFT_BATCH, FixedWidthPlanner

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch.builder import BatchBuilder
    from specserve.config import EngineConfig
    from specserve.engine.components import Components
    from specserve.metrics import EngineMetrics
    from specserve.models.runner import Runner
    from specserve.protocols import DraftPlanner
    from specserve.types import Draft


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


def choose_planner(c: Components, runner: Runner, builder: BatchBuilder) -> DraftPlanner:
    runtime = planning_runtime(c, runner, builder)
    plugins = make_planner(c.config, c.host, c.model.vocab_size, cut_of(c), runtime)
    return fixed_width(c.config) if plugins is None else plugins


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
