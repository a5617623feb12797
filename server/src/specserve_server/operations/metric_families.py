"""Prometheus families of one engine: every sample has the labels `model_name` and `engine`, as vLLM's have.

There is one engine, so its label is always "0": dashboards for several engines filter by it.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client.metrics_core import Metric as MetricFamily

    from specserve.metrics import Histogram
    from specserve.protocols import Metric

LABELS = ("model_name", "engine")
ENGINE = "0"


class EngineFamilies:
    """`model`: the name by which clients know it."""

    def __init__(self, model: str) -> None:
        self.values = (model, ENGINE)

    def gauge(self, name: str, help: str, value: float, labels: dict[str, str] | None = None) -> MetricFamily:
        labels = labels or {}
        family = GaugeMetricFamily(name, help, labels=[*LABELS, *labels])
        family.add_metric([*self.values, *labels.values()], value)
        return family

    def counter(
        self, name: str, help: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]
    ) -> MetricFamily:
        """`name` without `_total`."""
        family = CounterMetricFamily(name, help, labels=[*LABELS, *labels])
        for values, count in samples:
            family.add_metric([*self.values, *values], count)
        return family

    def histogram(self, name: str, help: str, histogram: Histogram, most: float = math.inf) -> MetricFamily:
        """Without the buckets whose bounds are above `most`."""
        family = HistogramMetricFamily(name, help, labels=LABELS)
        counts = list(accumulate(histogram.counts))
        shown = [bound for bound in histogram.bounds if bound <= most]
        buckets = [(bound_text(bound), count) for bound, count in zip(shown, counts, strict=False)]
        family.add_metric(self.values, [*buckets, ("+Inf", counts[-1])], histogram.total)
        return family


def bound_text(bound: float) -> str:
    """As OpenMetrics wants it: 1e+06, and not Python's 1000000.0."""
    text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]  # the library's function has no types
    return text


def disabled_gauge(name: str, labels: Sequence[str], disabled: Iterable[Sequence[str]]) -> MetricFamily:
    gauge = GaugeMetricFamily(name, "1: switched off after faults", labels=list(labels))
    for values in disabled:
        gauge.add_metric(values, 1)
    return gauge


def observer_families(metrics: Iterable[Metric]) -> Iterable[MetricFamily]:
    """Samples of one name are one family; its label names are those of the first sample."""
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for metric in metrics:
        names, values = [name for name, _ in metric.labels], [value for _, value in metric.labels]
        family = families.get(metric.name)
        if family is None:
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = families[metric.name] = make(metric.name, metric.help, labels=names)
        family.add_metric(values, metric.value)
    return families.values()
