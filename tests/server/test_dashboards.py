"""The series that dashboards for vLLM read are there, with their labels, and have data once requests were served."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from dashboard_series import DASHBOARDS, IDLE_IS_ZERO
from live_server import ADAPTER, LiveServer, serving
from metric_texts import OPENMETRICS, Scrape, scrape

from specserve_workbench.testing.engines import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXT = "def read_settings(path):\n    return path\n" * 2
BODIES: list[dict[str, Any]] = [
    {"prompt": TEXT, "temperature": 0, "max_tokens": 200, "logit_bias": {"5": 100}},
    {"prompt": TEXT, "seed": 7, "n": 3, "max_tokens": 20, "stream": True},
    {"prompt": [TEXT, TEXT[::-1]], "seed": 8, "n": 2, "max_tokens": 5, "model": ADAPTER},
]
"""The first is the same token over and over, so that drafts are accepted."""
NUM_CHOICES, NUM_PROMPTS = 8, 4
each_format = pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])


@pytest.fixture(scope="module")
def server(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """After some requests, one after the other."""
    with serving(toy_model, tmp_path_factory.mktemp("served")) as server:
        for body in BODIES:
            server.call(complete(server, {**body, "ignore_eos": True}))
        yield server


async def complete(server: LiveServer, body: dict[str, Any]) -> None:
    async with server.client.post("/v1/completions", json=body) as response:
        assert response.status == 200, await response.text()
        assert "error" not in await response.text()


def scraped(server: LiveServer, accept: str) -> Scrape:
    return server.call(scrape(server.client, accept))


@each_format
@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_every_series_of_a_dashboard_has_its_labels_and_data(server: LiveServer, dashboard: str, accept: str) -> None:
    samples = scraped(server, accept).samples()
    for name, labels in DASHBOARDS[dashboard].items():
        series = [sample for sample in samples if sample.name == name]
        assert series, f"{name} is missing"
        assert all(set(labels) <= sample.labels.keys() for sample in series), name
        assert name in IDLE_IS_ZERO or any(sample.value > 0 for sample in series), f"{name} has no data"


def test_numbers_of_requests_and_tokens_agree(server: LiveServer) -> None:
    found = scraped(server, OPENMETRICS)
    generated = 200 + 3 * 20 + 4 * 5
    assert found.value("vllm:generation_tokens_total") == generated
    assert found.value("vllm:request_generation_tokens_sum") == generated
    assert found.value("vllm:request_params_max_tokens_sum") == generated
    assert found.value("vllm:request_success_total", finished_reason="length") == NUM_CHOICES
    for name in ("prompt_tokens", "prefill_time_seconds", "decode_time_seconds", "inference_time_seconds"):
        assert found.value(f"vllm:request_{name}_count") == NUM_CHOICES
    assert found.value("vllm:request_params_n_count") == NUM_PROMPTS
    assert found.value("vllm:request_params_n_sum") == 1 + 3 + 2 + 2
    assert found.value("vllm:request_max_num_generation_tokens_sum") == 200 + 20 + 5 + 5
    assert found.value("vllm:request_prompt_tokens_sum") == found.value("vllm:prompt_tokens_total")


def test_the_phases_of_requests_add_up(server: LiveServer) -> None:
    found = scraped(server, OPENMETRICS)
    queue, prefill, decode, inference, whole, first = (
        found.value(f"vllm:{name}_seconds_sum")
        for name in (
            *("request_queue_time", "request_prefill_time", "request_decode_time", "request_inference_time"),
            *("e2e_request_latency", "time_to_first_token"),
        )
    )
    assert min(queue, prefill, decode) > 0
    assert prefill + decode == pytest.approx(inference)
    assert queue + inference == pytest.approx(whole)
    assert queue + prefill == pytest.approx(first)


def test_cached_prompt_tokens_are_those_of_the_prefix_cache(server: LiveServer) -> None:
    found = scraped(server, OPENMETRICS)
    assert found.value("vllm:prompt_tokens_cached_total") == found.value("vllm:prefix_cache_hits_total") > 0
    computed = found.value("vllm:prompt_tokens_total") - found.value("vllm:prompt_tokens_cached_total")
    assert found.value("vllm:iteration_tokens_total_sum") == computed + found.value("vllm:generation_tokens_total")
    assert found.value("vllm:iteration_tokens_total_count") == found.value("specserve_steps_total")


def test_the_infos_tell_the_cache_and_the_drafter(server: LiveServer) -> None:
    found, cache = scraped(server, OPENMETRICS), server.engine.engine.parts.cache
    labels = {"block_size": "16", "num_gpu_blocks": str(cache.num_blocks), "enable_prefix_caching": "True"}
    assert found.value("vllm:cache_config_info", cache_dtype="float32", **labels) == 1
    assert found.value("specserve_draft_tokens_total", drafter="ngram") > 0


NO_ADAPTER = 'running_lora_adapters="",waiting_lora_adapters=""'
UNFINISHED = ("vllm:num_requests_running", "vllm:num_requests_waiting")


def test_adapters_are_shown_while_requests_run_or_wait_under_them(server: LiveServer) -> None:
    max_num_seqs = DEFAULTS["max_num_seqs"]

    async def shown() -> tuple[Scrape, Scrape]:
        body = {"prompt": "a", "n": max_num_seqs + 1, "max_tokens": 400, "ignore_eos": True, "model": ADAPTER}
        both = f'running_lora_adapters="{ADAPTER}",waiting_lora_adapters="{ADAPTER}"'
        request = asyncio.create_task(complete(server, body))
        while both not in (during := await scrape(server.client)).text:
            await asyncio.sleep(0.001)
        request.cancel()
        while sum(map((after := await scrape(server.client)).value, UNFINISHED)) or NO_ADAPTER not in after.text:
            await asyncio.sleep(0.001)
        return during, after

    during, after = server.call(shown())
    in_use = {"running_lora_adapters": ADAPTER, "waiting_lora_adapters": ADAPTER}
    assert during.value("vllm:lora_requests_info", max_lora="8", **in_use) > 1e9, "a time"
    assert after.value("vllm:lora_requests_info", running_lora_adapters="", waiting_lora_adapters="") > 1e9
