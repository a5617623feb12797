"""What an engine tells of itself, as data: its metrics hold counters by tuples, histograms and a log of faults, which
msgspec does not know."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import TypeAlias

import msgspec

from specserve.faults import FaultLog
from specserve.metrics import AdapterUse, CacheInfo, EngineMetrics, Histogram
from specserve.protocols import Metric
from specserve_server.engine_answers import EngineState


class SentHistogram(msgspec.Struct, frozen=True, array_like=True, tag=True):
    bounds: tuple[float, ...]
    counts: list[int]
    total: float


class SentCounter(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Keys are a number, a text, or several texts."""

    counts: list[tuple[int | str | tuple[str, ...], int]]


class SentSet(msgspec.Struct, frozen=True, array_like=True, tag=True):
    members: list[str]


class SentFaults(msgspec.Struct, frozen=True, array_like=True, tag=True):
    counts: list[tuple[tuple[str, str, str], int]]
    disabled: list[tuple[str, str]]


class SentNumber(msgspec.Struct, frozen=True, array_like=True, tag=True):
    number: int | float


SentValue: TypeAlias = SentNumber | SentHistogram | SentCounter | SentSet | SentFaults


class SentState(msgspec.Struct, frozen=True):
    """An `EngineState`. `metrics`: the fields of `EngineMetrics`."""

    metrics: dict[str, SentValue]
    observer_metrics: list[Metric]
    adapter_use: AdapterUse | None
    cache_info: CacheInfo
    description: dict[str, object]
    plugins: list[dict[str, object]]
    process_id: int
    num_requests: int


def sent_state(state: EngineState) -> SentState:
    """The step thread may change the metrics meanwhile: copies are made at once."""
    return SentState(
        {field.name: sent_value(getattr(state.metrics, field.name)) for field in fields(EngineMetrics)},
        list(state.observer_metrics),
        state.adapter_use,
        state.cache_info,
        dict(state.description),
        [dict(plugin) for plugin in state.plugins],
        state.process_id,
        state.num_requests,
    )


def sent_value(value: object) -> SentValue:
    if isinstance(value, Histogram):
        return SentHistogram(value.bounds, value.counts.copy(), value.total)
    if isinstance(value, Counter):
        return SentCounter(list(value.copy().items()))
    if isinstance(value, FaultLog):
        return SentFaults(list(value.counts.copy().items()), sorted(value.disabled.copy()))
    if isinstance(value, set):
        return SentSet(sorted(value.copy()))
    assert isinstance(value, int | float), f"a metric is a {type(value).__name__}"
    return SentNumber(value)


def received_state(state: SentState) -> EngineState:
    metrics = EngineMetrics(**{name: received_value(value) for name, value in state.metrics.items()})  # type: ignore[arg-type]
    return EngineState(
        metrics,
        state.observer_metrics,
        state.adapter_use,
        state.cache_info,
        state.description,  # type: ignore[arg-type]
        state.plugins,  # type: ignore[arg-type]
        state.process_id,
        state.num_requests,
    )


def received_value(value: SentValue) -> object:
    match value:
        case SentNumber(number):
            return number
        case SentHistogram(bounds, counts, total):
            histogram = Histogram(bounds)
            histogram.counts, histogram.total = counts, total
            return histogram
        case SentCounter(counts):
            return Counter(dict(counts))
        case SentSet(members):
            return set(members)
        case SentFaults(counts, disabled):
            log = FaultLog()
            log.counts.update(dict(counts))
            log.disabled.update(disabled)
            return log
