"""What routers of several servers ask: /v1/loads, /get_server_info, and vLLM's former names in /metrics."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from specserve import __version__
from specserve.metrics import CacheInfo

if TYPE_CHECKING:
    from fake_engine import FakeEngine


def make_busy(engine: FakeEngine) -> None:
    engine.cache_info = CacheInfo(block_size=16, num_blocks=100, dtype="bfloat16", prefix_cache=True)
    metrics = engine.metrics
    metrics.num_requests_running, metrics.num_requests_waiting, metrics.kv_cache_usage = 3, 2, 0.25
    metrics.prefix_cache_queries, metrics.prefix_cache_hits = 400, 100


async def test_the_load_has_sglangs_form(client: Any, engine: FakeEngine) -> None:
    make_busy(engine)
    for path in ("/v1/loads", "/v1/loads?include=core,disagg,queues,memory"):
        answer = await (await client.get(path)).json()
        assert answer["loads"] == [
            {
                "dp_rank": 0, "num_running_reqs": 3, "num_waiting_reqs": 2, "num_total_reqs": 5, "num_used_tokens": 400,
                "max_total_num_tokens": 1600, "token_usage": 0.25, "cache_hit_rate": 0.25,
            }
        ]  # fmt: skip
        assert answer["aggregate"] == {
            "total_running_reqs": 3, "total_waiting_reqs": 2, "total_reqs": 5, "avg_token_usage": 0.25,
        }  # fmt: skip
        assert (answer["version"], answer["dp_rank_count"]) == (__version__, 1)
        age = datetime.now(UTC) - datetime.fromisoformat(answer["timestamp"])
        assert 0 <= age.total_seconds() < 10


async def test_before_the_first_request_nothing_was_hit(client: Any) -> None:
    (load,) = (await (await client.get("/v1/loads")).json())["loads"]
    assert (load["cache_hit_rate"], load["num_total_reqs"]) == (0.0, 0)


async def test_a_router_learns_which_server_it_is(connect: Any, engine: FakeEngine) -> None:
    make_busy(engine)
    infos = []
    for _ in range(2):
        client = await connect(engine, served_model_name="public")
        infos.append(await (await client.get("/get_server_info")).json())
        assert await (await client.get("/get_server_info")).json() == infos[-1]
    first, second = infos
    assert first.pop("instance_id") != second.pop("instance_id"), "of each process"
    assert first == second == {
        "model_id": "public", "model_path": "fake-model", "worker_type": "regular", "kv_block_size": 16,
        "effective_attention_block_size": 16, "max_model_len": engine.max_model_len, "version": __version__,
    }  # fmt: skip


async def test_they_need_the_api_key_and_a_loaded_engine(connect: Any, engine: FakeEngine) -> None:
    client = await connect(engine, api_key="secret")
    for path in ("/v1/loads", "/get_server_info"):
        assert (await client.get(path)).status == 401
        assert (await client.get(path, headers={"Authorization": "Bearer secret"})).status == 200


async def test_former_names_of_vllms_metrics_have_the_values_of_the_present_ones(
    client: Any, engine: FakeEngine
) -> None:
    make_busy(engine)
    lines = (await (await client.get("/metrics")).text()).splitlines()
    values = {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith("vllm:")}
    assert values["vllm:gpu_cache_usage_perc"] == values["vllm:kv_cache_usage_perc"] == 0.25
    assert values["vllm:gpu_prefix_cache_queries_total"] == values["vllm:prefix_cache_queries_total"] == 400
    assert values["vllm:gpu_prefix_cache_hits_total"] == values["vllm:prefix_cache_hits_total"] == 100
    assert values["vllm:gpu_prefix_cache_hit_rate"] == 0.25
