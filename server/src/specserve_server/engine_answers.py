"""What an engine answers to the server, in this process or from another."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve.metrics import AdapterUse, CacheInfo, EngineMetrics
    from specserve.protocols import Metric, ResolvedModel
    from specserve_checks.json_types import JsonObject, JsonValue


class ModelLookup(NamedTuple):
    """`model`: pinned until its `release` is called; None where no plugin knows the name. `failed`: plugins that could
    not say."""

    model: ResolvedModel | None
    failed: Sequence[str] = ()


class EngineState(NamedTuple):
    """What an engine tells of itself while it runs, read at once. `description` and `plugins` are those of
    /v1/plugins."""

    metrics: EngineMetrics
    observer_metrics: Sequence[Metric]
    adapter_use: AdapterUse | None
    """None where no plugin serves adapters."""
    cache_info: CacheInfo
    description: Mapping[str, JsonValue]
    plugins: Sequence[JsonObject]
    process_id: int
    """Of the process that the engine runs in."""
    num_requests: int
    """Those of all clients of this engine that run or wait."""
