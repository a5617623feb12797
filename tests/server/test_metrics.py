"""GET /metrics over the fake engine: names, labels, both formats, what is there from the start."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

import pytest
from dashboard_series import DASHBOARDS
from metric_texts import OPENMETRICS, Scrape, scrape

from specserve.metrics import SECONDS, AdapterUse
from specserve.protocols import Metric
from specserve.types import FinishReason

if TYPE_CHECKING:
    from fake_engine import FakeEngine

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
OTHER_METRICS = [
    Metric("adaptive_width", "Width", "gauge", 4.0, (("request", "a"),)),
    Metric("adaptive_width", "Width", "gauge", 5.0, (("request", 'b"\\\n'),)),
    Metric("adaptive_changes_total", "Changes", "counter", 7.0),
]
each_format = pytest.mark.parametrize("accept", [None, "text/plain", OPENMETRICS, PROMETHEUS_3])


def used(engine: FakeEngine) -> None:
    """Something in every metric."""
    numbers = engine.metrics
    numbers.num_requests_running, numbers.kv_cache_usage, numbers.generation_tokens = 3, 0.25, 40
    numbers.num_drafts, numbers.num_accepted_tokens = 5, 12
    numbers.accepted_per_position[1] = 4
    numbers.draft_tokens_by_drafter["ngram"], numbers.accepted_tokens_by_drafter["ngram"] = 20, 12
    numbers.request_success["stop"] = 2
    numbers.drafter_faults["ngram", "shape"] = 1
    numbers.drafters_disabled.add("ngram")
    numbers.graph_steps["full", ""] = 9
    numbers.time_to_first_token.add(0.03)
    numbers.time_to_first_token.add(1000.0)
    engine.adapters = AdapterUse(8, ("a", "b"), ())
    engine.observed = [*OTHER_METRICS]


@each_format
async def test_metrics_have_the_names_that_dashboards_scrape(client: Any, engine: FakeEngine, accept: str) -> None:
    used(engine)
    found = await scrape(client, accept)
    assert found.value("vllm:num_requests_running") == 3
    assert found.value("vllm:kv_cache_usage_perc") == 0.25
    assert found.value("vllm:generation_tokens_total") == 40
    assert found.value("vllm:spec_decode_num_drafts_total") == 5
    assert found.value("vllm:spec_decode_num_accepted_tokens_total") == 12
    assert found.value("vllm:spec_decode_num_accepted_tokens_per_pos_total", position="0") == 0
    assert found.value("vllm:spec_decode_num_accepted_tokens_per_pos_total", position="1") == 4
    assert found.value("specserve_draft_tokens_total", drafter="ngram") == 20
    assert found.value("specserve_accepted_draft_tokens_total", drafter="ngram") == 12
    assert found.value("vllm:request_success_total", finished_reason="stop") == 2
    assert found.value("specserve_drafter_faults_total", drafter="ngram", reason="shape") == 1
    assert found.value("specserve_drafter_disabled", drafter="ngram") == 1
    assert found.value("specserve_graph_steps_total", mode="full", reason="") == 9
    assert found.value("vllm:time_to_first_token_seconds_bucket", le="0.05") == 1
    assert found.value("vllm:time_to_first_token_seconds_bucket", le="+Inf") == 2
    assert found.value("vllm:time_to_first_token_seconds_count") == 2
    assert found.value("vllm:time_to_first_token_seconds_sum") == 1000.03
    assert found.value("vllm:lora_requests_info", max_lora="8", running_lora_adapters="a,b") > 1e9
    assert found.value("vllm:cache_config_info", num_gpu_blocks="100", engine="0", model_name="fake-model") == 1


async def test_every_series_is_there_before_the_first_request(client: Any, engine: FakeEngine) -> None:
    engine.adapters = AdapterUse(8, (), ())
    found = await scrape(client)
    for dashboard in DASHBOARDS.values():
        for name in dashboard:
            is_info = name.endswith("_info")
            assert (found.value(name) > 0) is is_info, name
    for reason in get_args(FinishReason):
        assert found.value("vllm:request_success_total", finished_reason=reason) == 0


async def test_adapters_are_not_spoken_of_where_no_plugin_serves_them(client: Any) -> None:
    assert "lora" not in (await scrape(client)).text


@each_format
async def test_the_text_follows_the_rules_of_its_format(client: Any, engine: FakeEngine, accept: str) -> None:
    used(engine)
    found = await scrape(client, accept)
    series = Counter((sample.name, *sorted(sample.labels.items())) for sample in found.samples())
    assert [one for one, times in series.items() if times > 1] == []
    lines = found.text.splitlines()
    for kind in ("# HELP", "# TYPE"):
        names = [line.split()[2] for line in lines if line.startswith(kind)]
        assert len(names) == len(set(names)) == len(found.families()), kind
    assert (lines[-1] == "# EOF") is found.content_type.startswith(OPENMETRICS)
    for family in found.families():
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram", "info"), family.name
        if family.type == "histogram":
            check_buckets(family)


def check_buckets(family: Any) -> None:
    buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
    bounds, counts = [float(s.labels["le"]) for s in buckets], [s.value for s in buckets]
    assert bounds == sorted(set(bounds)), family.name
    assert bounds[-1] == float("inf"), family.name
    assert counts == sorted(counts), family.name
    assert counts[-1] == sum(sample.value for sample in family.samples if sample.name.endswith("_count")), family.name


@each_format
async def test_every_series_of_the_engine_names_model_and_engine(client: Any, engine: FakeEngine, accept: str) -> None:
    used(engine)
    found = [sample for sample in (await scrape(client, accept)).samples() if sample.name.startswith("vllm:")]
    assert len(found) > 100
    assert {(sample.labels["model_name"], sample.labels["engine"]) for sample in found} == {("fake-model", "0")}


def bounds(found: Scrape, name: str) -> list[float]:
    return [float(sample.labels["le"]) for sample in found.samples() if sample.name == f"vllm:{name}_bucket"]


async def test_buckets_of_tokens_end_at_the_context(client: Any, engine: FakeEngine) -> None:
    engine.metrics.request_params_max_tokens.add(2_000_000_000)
    engine.metrics.request_params_max_tokens.add(engine.max_model_len)
    engine.metrics.request_params_max_tokens.add(200)
    found, infinity = await scrape(client), float("inf")
    for name in ("request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens"):
        assert bounds(found, name) == [1, 2, 5, 10, 20, 50, 100, 200, infinity]
    assert found.value("vllm:request_params_max_tokens_bucket", le="200.0") == 1
    assert found.value("vllm:request_params_max_tokens_bucket", le="+Inf") == 3
    assert bounds(found, "request_decode_time_seconds") == [*SECONDS, infinity]
    assert bounds(found, "iteration_tokens_total")[:4] == [1, 8, 16, 32]
    assert bounds(found, "request_params_n") == [1, 2, 5, 10, 20, 50, 100, infinity]


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "text/plain; version=0.0.4"),
        ("", "text/plain; version=0.0.4"),
        ("text/html", "text/plain; version=0.0.4"),
        ("application/openmetrics-text; version=new", "text/plain; version=0.0.4"),
        ("application/openmetrics-text; version=0.0.1", "text/plain; version=0.0.4"),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0"),
        (PROMETHEUS_3, "application/openmetrics-text; version=1.0.0"),
    ],
)
async def test_the_client_chooses_the_format(client: Any, accept: str, content_type: str) -> None:
    assert (await scrape(client, accept)).content_type.startswith(content_type)


async def test_the_process_is_measured_too(client: Any) -> None:
    found = await scrape(client)
    assert found.value("process_resident_memory_bytes") > 2**20
    assert found.value("process_cpu_seconds_total") > 0
    assert found.value("process_open_fds") > 0
    assert found.value("python_info") == 1
    assert found.value("python_gc_collections_total", generation="0") >= 0


@each_format
async def test_observers_metrics_are_exposed(client: Any, engine: FakeEngine, accept: str) -> None:
    engine.observed = [*OTHER_METRICS]
    found = await scrape(client, accept)
    assert found.value("adaptive_width", request="a") == 4.0
    assert found.value("adaptive_width", request='b"\\\n') == 5.0
    assert found.value("adaptive_changes_total") == 7.0


async def complete(client: Any, **body: Any) -> int:
    response = await client.post("/v1/completions", json=body)
    await response.read()
    return int(response.status)


@pytest.mark.direct
async def test_choices_of_a_prompt_count_together(client: Any, engine: FakeEngine) -> None:
    assert await complete(client, prompt=["a", "b"], n=3, max_tokens=4) == 200
    assert await complete(client, prompt="a", n=2, max_tokens=6, stream=True) == 200
    assert await complete(client, prompt="a", n=0) == 400
    engine.error_after = 0
    assert await complete(client, prompt="a") == 500
    engine.error_after = 1
    assert await complete(client, prompt="a", stream=True) == 200, "the error is an event"
    found = await scrape(client)
    assert found.value("vllm:request_params_n_count") == 3
    assert found.value("vllm:request_params_n_bucket", le="2.0") == 1
    assert found.value("vllm:request_params_n_sum") == 8
    assert found.value("vllm:request_max_num_generation_tokens_sum") == 4 + 4 + 6


async def test_two_applications_share_no_metrics(connect: Any, engine: FakeEngine) -> None:
    one, two = await connect(engine), await connect(engine, served_model_name="other")
    assert await complete(one, prompt="a") == 200
    assert (await scrape(one)).value("vllm:request_params_n_count", model_name="fake-model") == 1
    assert (await scrape(two)).value("vllm:request_params_n_count", model_name="other") == 0
