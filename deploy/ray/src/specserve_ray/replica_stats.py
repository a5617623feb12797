"""What a replica reports to routers, as plain values: Serve sends it every `routing_stats_period` seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve_server.state.server_state import ServerState


class ReplicaStats(msgspec.Struct, frozen=True, kw_only=True):
    """As the policy reads it. The defaults are those of a replica that has not reported yet."""

    number: int = 0
    """Of the report. Routers are told of all replicas whenever one has reported."""
    num_requests: int = 0
    """That run or wait in the engine."""
    num_waiting: int = 0
    kv_usage: float = 0.0
    """The share of KV blocks that running requests hold."""
    cache_tokens: int = 65_536
    """The tokens that fit in its KV cache; 0 where prefixes are not kept."""
    adapters: tuple[str, ...] = ()
    """Those that requests are under now."""


def stats_of(state: ServerState, number: int) -> ReplicaStats:
    engine = state.engine
    assert engine is not None, "a replica reports once it serves"
    found = engine.read_state()  # it is in this process
    metrics, cache, use = found.metrics, found.cache_info, found.adapter_use
    return ReplicaStats(
        number=number,
        num_requests=engine.num_requests,
        num_waiting=metrics.num_requests_waiting,
        kv_usage=metrics.kv_cache_usage,
        cache_tokens=cache.num_blocks * cache.block_size if cache.prefix_cache else 0,
        adapters=() if use is None else (*use.running, *use.waiting),
    )


def to_table(stats: ReplicaStats) -> dict[str, object]:
    return msgspec.structs.asdict(stats)


def from_table(table: Mapping[str, object]) -> ReplicaStats:
    """Of a replica of another version, too: what it does not report has its default."""
    known = {name: table[name] for name in ReplicaStats.__struct_fields__ if name in table}
    return msgspec.convert(known, ReplicaStats)
