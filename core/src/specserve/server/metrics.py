"""GET /metrics: the engine's counters in Prometheus text.

Owns the exposed names, which are those that dashboards and bench tools for vLLM already scrape. Reads plain
numbers when it is asked; counts nothing itself. No global registry.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from specserve.metrics import SECONDS
from specserve.server.state import loaded_engine, served_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric as Family

    from specserve.metrics import EngineMetrics, Histogram
    from specserve.protocols import Metric
    from specserve.server.engine_client import EngineClient

GAUGES = {
    "vllm:num_requests_running": ("num_requests_running", "Requests in the running batch"),
    "vllm:num_requests_waiting": ("num_requests_waiting", "Requests that wait to be scheduled"),
    "vllm:kv_cache_usage_perc": ("kv_cache_usage", "KV cache in use; 1 means all of it"),
}
COUNTERS = {
    "vllm:prompt_tokens": ("prompt_tokens", "Prompt tokens computed"),
    "vllm:generation_tokens": ("generation_tokens", "Tokens generated"),
    "vllm:num_preemptions": ("num_preemptions", "Requests preempted and recomputed"),
    "vllm:prefix_cache_queries": ("prefix_cache_queries", "Tokens looked up in the prefix cache"),
    "vllm:prefix_cache_hits": ("prefix_cache_hits", "Tokens that the prefix cache served"),
    "vllm:spec_decode_num_drafts": ("num_drafts", "Drafts verified"),
    "vllm:spec_decode_num_draft_tokens": ("num_draft_tokens", "Tokens drafted and verified"),
    "vllm:spec_decode_num_accepted_tokens": ("num_accepted_tokens", "Draft tokens accepted"),
    "specserve_steps": ("num_steps", "Steps of the engine"),
}
HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": ("time_to_first_token", "From arrival to the first token"),
    "vllm:inter_token_latency_seconds": ("inter_token_latency", "Between tokens of one request"),
    "vllm:e2e_request_latency_seconds": ("e2e_request_latency", "From arrival to the last token"),
    "vllm:request_queue_time_seconds": ("request_queue_time", "From arrival to the first scheduling"),
}
MODEL = "model_name"


class EngineCollector(Collector):
    """Turns the numbers of an engine into families when a scrape asks."""

    def __init__(self, engine: EngineClient, model: str) -> None:
        self._engine = engine
        self._model = model

    def collect(self) -> Iterator[Family]:
        numbers = self._engine.metrics
        observed = list(self._engine.observer_metrics())  # first: what fails in it is counted below
        for name, (field, help) in GAUGES.items():
            gauge = GaugeMetricFamily(name, help, labels=[MODEL])
            gauge.add_metric([self._model], getattr(numbers, field))
            yield gauge
        for name, (field, help) in COUNTERS.items():
            yield self._counter(name, help, (), [((), getattr(numbers, field))])
        for name, (field, help) in HISTOGRAMS.items():
            yield self._histogram(name, help, getattr(numbers, field))
        yield from self._labelled(numbers)
        yield from observer_families(observed)

    def _labelled(self, numbers: EngineMetrics) -> Iterator[Family]:
        # The step thread may add a key meanwhile: copy before iterating.
        success = [((reason,), count) for reason, count in list(numbers.request_success.items())]
        yield self._counter("vllm:request_success", "Requests ended, by reason", ("finished_reason",), success)
        positions = [((str(depth),), count) for depth, count in sorted(numbers.accepted_per_position.copy().items())]
        yield self._counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos", "Accepted draft tokens by depth", ("position",), positions
        )
        faults = list(numbers.drafter_faults.items())
        yield self._counter("specserve_drafter_faults", "Faults of drafters", ("drafter", "reason"), faults)
        disabled = GaugeMetricFamily("specserve_drafter_disabled", "1: switched off after faults", labels=["drafter"])
        for drafter in sorted(numbers.drafters_disabled.copy()):
            disabled.add_metric([drafter], 1)
        yield disabled
        parts = list(numbers.faults.counts.items())
        help = "Faults of plugins' parts, and of requests"
        yield self._counter("specserve_plugin_faults", help, ("plugin", "part", "reason"), parts)
        help = "1: switched off after faults"
        off = GaugeMetricFamily("specserve_plugin_part_disabled", help, labels=["plugin", "part"])
        for part in sorted(numbers.faults.disabled.copy()):
            off.add_metric(part, 1)
        yield off
        graphs = list(numbers.graph_steps.items())
        yield self._counter("specserve_graph_steps", "Steps by graph mode and reason", ("mode", "reason"), graphs)

    def _counter(
        self, name: str, help: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]
    ) -> Family:
        family = CounterMetricFamily(name, help, labels=[MODEL, *labels])
        for values, count in samples:
            family.add_metric([self._model, *values], count)
        return family

    def _histogram(self, name: str, help: str, histogram: Histogram) -> Family:
        family = HistogramMetricFamily(name, help, labels=[MODEL])
        bounds = [*map(str, SECONDS), "+Inf"]
        buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
        family.add_metric([self._model], buckets, histogram.total)
        return family


def observer_families(metrics: Iterable[Metric]) -> Iterator[Family]:
    """Samples of one name are one family; its label names are those of the first sample."""
    families: dict[str, Family] = {}
    for metric in metrics:
        names, values = [name for name, _ in metric.labels], [value for _, value in metric.labels]
        family = families.get(metric.name)
        if family is None:
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = families[metric.name] = make(metric.name, metric.help, labels=names)
        assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
        family.add_metric(values, metric.value)
    yield from families.values()


async def metrics(request: web.Request) -> web.Response:
    """A registry per scrape costs microseconds and shares nothing between applications."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(EngineCollector(loaded_engine(request), served_name(request)))
    return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
