"""What routers of several servers ask beside /metrics: the load as an object, and which server this is.

The forms are SGLang's, which smg and vLLM's router read, without the fields that this server has nothing to say for:
readers take these for unknown.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from specserve import __version__
from specserve_server.state.server_state import loaded_engine, served_model_names, state_of
from specserve_server.wire.json_response import json_response

if TYPE_CHECKING:
    from aiohttp import web

    from specserve.metrics import EngineMetrics
    from specserve_server.engine_answers import EngineState

NUM_RANKS = 1
"""One engine answers for all of its devices."""


class EngineLoad(msgspec.Struct):
    """`token_usage`: the share of the KV cache that requests hold. `cache_hit_rate`: of prompt tokens, since the
    start."""

    dp_rank: int
    num_running_reqs: int
    num_waiting_reqs: int
    num_total_reqs: int
    num_used_tokens: int
    max_total_num_tokens: int
    token_usage: float
    cache_hit_rate: float


class Aggregate(msgspec.Struct):
    total_running_reqs: int
    total_waiting_reqs: int
    total_reqs: int
    avg_token_usage: float


class Loads(msgspec.Struct):
    """`timestamp`: ISO 8601, in UTC."""

    timestamp: str
    version: str
    dp_rank_count: int
    loads: list[EngineLoad]
    aggregate: Aggregate


class ServerInfo(msgspec.Struct):
    """`instance_id`: of this process; another one after a restart. Block sizes are in tokens."""

    model_id: str
    model_path: str
    worker_type: Literal["regular"]
    instance_id: str
    kv_block_size: int
    effective_attention_block_size: int
    max_model_len: int
    version: str


async def loads(request: web.Request) -> web.Response:
    """Whatever sections `include` asks for: others than core are empty here."""
    load = engine_load(await asyncio.to_thread(loaded_engine(request).read_state))
    total = Aggregate(load.num_running_reqs, load.num_waiting_reqs, load.num_total_reqs, load.token_usage)
    now = datetime.now(UTC).isoformat()
    return json_response(Loads(now, __version__, NUM_RANKS, [load], total))


async def server_info(request: web.Request) -> web.Response:
    engine = loaded_engine(request)
    block_size = (await asyncio.to_thread(engine.read_state)).cache_info.block_size
    return json_response(
        ServerInfo(
            model_id=served_model_names(request)[0],
            model_path=engine.model_name,
            worker_type="regular",
            instance_id=state_of(request).instance_id,
            kv_block_size=block_size,
            effective_attention_block_size=block_size,
            max_model_len=engine.max_model_len,
            version=__version__,
        )
    )


def engine_load(state: EngineState) -> EngineLoad:
    metrics, cache = state.metrics, state.cache_info
    running, waiting = metrics.num_requests_running, metrics.num_requests_waiting
    tokens = cache.num_blocks * cache.block_size
    return EngineLoad(
        dp_rank=0,
        num_running_reqs=running,
        num_waiting_reqs=waiting,
        num_total_reqs=running + waiting,
        num_used_tokens=round(metrics.kv_cache_usage * tokens),
        max_total_num_tokens=tokens,
        token_usage=metrics.kv_cache_usage,
        cache_hit_rate=hit_rate(metrics),
    )


def hit_rate(metrics: EngineMetrics) -> float:
    """Of the tokens that were looked up in the prefix cache, the share that it had; 0 before the first."""
    queries = metrics.prefix_cache_queries
    return metrics.prefix_cache_hits / queries if queries else 0.0
