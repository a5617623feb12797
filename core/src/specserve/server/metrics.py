"""GET /metrics: the engine's metrics and those of plugins' observers, in Prometheus text.

Reads plain metrics when it is scraped; counts nothing itself. No global registry.
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
from specserve.server.metric_names import COUNTERS, COUNTERS_BY_DRAFTER, GAUGES, HISTOGRAMS
from specserve.server.state import loaded_engine, served_model_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric as MetricFamily

    from specserve.metrics import EngineMetrics, Histogram
    from specserve.protocols import Metric
    from specserve.server.engine_client import EngineClient

MODEL = "model_name"


class EngineCollector(Collector):
    """Turns the metrics of an engine into families at each scrape."""

    def __init__(self, engine: EngineClient, model: str) -> None:
        self._engine = engine
        self._model = model

    def collect(self) -> Iterator[MetricFamily]:
        metrics = self._engine.metrics
        observer_metrics = list(self._engine.observer_metrics())  # first: its faults are counted below
        for name, (field, help) in GAUGES.items():
            gauge = GaugeMetricFamily(name, help, labels=[MODEL])
            gauge.add_metric([self._model], getattr(metrics, field))
            yield gauge
        for name, (field, help) in COUNTERS.items():
            yield self._counter(name, help, (), [((), getattr(metrics, field))])
        for name, (field, help) in HISTOGRAMS.items():
            yield self._histogram(name, help, getattr(metrics, field))
        yield from self._labelled(metrics)
        yield from observer_families(observer_metrics)

    def _labelled(self, metrics: EngineMetrics) -> Iterator[MetricFamily]:
        # The step thread may add a key meanwhile: copy before iterating.
        success = [((reason,), count) for reason, count in list(metrics.request_success.items())]
        yield self._counter("vllm:request_success", "Requests ended, by reason", ("finished_reason",), success)
        positions = [((str(depth),), count) for depth, count in sorted(metrics.accepted_per_position.copy().items())]
        yield self._counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos", "Accepted draft tokens by depth", ("position",), positions
        )
        for name, (field, help) in COUNTERS_BY_DRAFTER.items():
            counts = [((drafter,), count) for drafter, count in list(getattr(metrics, field).items())]
            yield self._counter(name, help, ("drafter",), counts)
        faults = list(metrics.drafter_faults.items())
        yield self._counter("specserve_drafter_faults", "Faults of drafters", ("drafter", "reason"), faults)
        drafters = [(drafter,) for drafter in sorted(metrics.drafters_disabled.copy())]
        yield disabled_gauge("specserve_drafter_disabled", ("drafter",), drafters)
        part_faults = list(metrics.faults.counts.items())
        help = "Faults of plugins' parts, and of requests"
        yield self._counter("specserve_plugin_faults", help, ("plugin", "part", "reason"), part_faults)
        parts = sorted(metrics.faults.disabled.copy())
        yield disabled_gauge("specserve_plugin_part_disabled", ("plugin", "part"), parts)
        by_use = ("mode", "reason")
        steps, passes = list(metrics.graph_steps.items()), list(metrics.graph_draft_passes.items())
        yield self._counter("specserve_graph_steps", "Steps by graph mode and reason", by_use, steps)
        yield self._counter(
            "specserve_graph_draft_passes", "Draft model passes by graph mode and reason", by_use, passes
        )

    def _counter(
        self, name: str, help: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]
    ) -> MetricFamily:
        family = CounterMetricFamily(name, help, labels=[MODEL, *labels])
        for values, count in samples:
            family.add_metric([self._model, *values], count)
        return family

    def _histogram(self, name: str, help: str, histogram: Histogram) -> MetricFamily:
        family = HistogramMetricFamily(name, help, labels=[MODEL])
        bounds = [*map(str, SECONDS), "+Inf"]
        buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
        family.add_metric([self._model], buckets, histogram.total)
        return family


def disabled_gauge(name: str, labels: tuple[str, ...], disabled: Iterable[tuple[str, ...]]) -> MetricFamily:
    gauge = GaugeMetricFamily(name, "1: switched off after faults", labels=list(labels))
    for values in disabled:
        gauge.add_metric(values, 1)
    return gauge


def observer_families(metrics: Iterable[Metric]) -> Iterator[MetricFamily]:
    """Samples of one name are one family; its label names are those of the first sample."""
    families: dict[str, MetricFamily] = {}
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
    registry.register(EngineCollector(loaded_engine(request), served_model_names(request)[0]))
    return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
