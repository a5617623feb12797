"""The description of an engine in the banner and in /v1/plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.host_memory import HUGE_PAGE_SETTING, has_huge_pages
from specserve.metrics import AdapterUse, CacheInfo
from specserve.namespaces import adapter_name
from specserve.plugins.loaded_plugin import BUILTIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.config import EngineConfig
    from specserve.engine.choose_attention import ChosenAttention
    from specserve.engine.engine import Engine
    from specserve.engine.roles import OwnedKernels
    from specserve.kv.cache import KVCache
    from specserve.plugins.host import PluginHost
    from specserve.protocols import Drafter
    from specserve_checks.json_types import JsonObject, JsonValue


def describe(
    config: EngineConfig,
    host: PluginHost,
    kernels: OwnedKernels,
    attention: ChosenAttention,
    drafters: Sequence[Drafter],
    engine: Engine,
) -> JsonObject:
    return {
        "model": config.model,
        "kernels": describe_kernels(config, host, kernels),
        "attention": attention.description,
        "drafters": [drafter.name for drafter in drafters],
        "verifier": engine.verifier.name,
        "lossless": engine.verifier.lossless,
        "row_invariant": attention.row_invariant,
        "kv_cache_tokens": engine.parts.limits.cache_tokens,
        **describe_pages(engine.parts.cache),
        "config": config,
    }


def describe_pages(cache: KVCache) -> JsonObject:
    """Whether the system gives huge pages to a cache on the host; empty where there is nothing to say."""
    given = has_huge_pages() if cache.host_areas() else None
    if given is None:
        return {}
    return {"huge_pages": "yes" if given else f"no ({HUGE_PAGE_SETTING}); steps are slower"}


def describe_graphs(engine: Engine) -> JsonObject:
    """The mode, what was recorded, and how steps ran so far, with the reasons of those that ran in no better mode."""
    steps: list[JsonValue] = [
        {"mode": mode, "reason": reason, "steps": count}
        for (mode, reason), count in list(engine.metrics.graph_steps.items())
    ]
    return {**engine.runner.describe_graphs(), "steps": steps}


def describe_planner(engine: Engine) -> JsonObject:
    """The planner's description of itself; empty if it has none, and if nobody drafts."""
    described = engine.planner.describe() if engine.drafting.guards else None
    return {} if described is None else {"planner": described}


def cache_info(config: EngineConfig, cache: KVCache) -> CacheInfo:
    dtype = str(cache.data.dtype).removeprefix("torch.")
    return CacheInfo(cache.block_size, cache.num_blocks, dtype, config.prefix_cache)


def adapter_use(engine: Engine) -> AdapterUse | None:
    """None where no plugin serves adapters. Any thread may ask."""
    if engine.parts.max_adapters is None:
        return None
    queues = engine.scheduler.running, engine.scheduler.waiting
    running, waiting = ({adapter_name(request.adapter) for request in list(queue)} - {""} for queue in queues)
    return AdapterUse(engine.parts.max_adapters, tuple(sorted(running)), tuple(sorted(waiting)))


def describe_kernels(config: EngineConfig, host: PluginHost, owned: OwnedKernels) -> str:
    """The kernel set, its owner, and the plugins that have none for this dtype, which only the checkpoint tells."""
    others = [plugin.name for plugin in host.implementers["make_kernels"] if plugin.name not in (BUILTIN, owned.owner)]
    declined = "".join(f"; {name} has none for {config.dtype} on {config.device}" for name in others)
    return f"{owned.kernels.name} ({owned.owner}{declined})"
