"""lora's metrics, which the store counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_lora.store import AdapterStore

GAUGE, COUNTER = "gauge", "counter"
KNOWN = ("specserve_lora_known", "Adapters that have a name", GAUGE)
LOADED = ("specserve_lora_loaded", "Versions of adapters in memory", GAUGE)
BYTES = ("specserve_lora_bytes", "Weights of loaded adapters", GAUGE)
LOADS = ("specserve_lora_loads_total", "Adapters read from disk", COUNTER)
EVICTIONS = ("specserve_lora_evictions_total", "Adapters evicted from memory for others", COUNTER)
REQUESTS = ("specserve_lora_requests", "Requests that have pinned an adapter, running or waiting", GAUGE)
METRICS = (KNOWN, LOADED, BYTES, LOADS, EVICTIONS, REQUESTS)


class LoraObserver:
    observe = None

    def __init__(self, store: AdapterStore) -> None:
        self.store = store

    def metrics(self) -> Iterator[Metric]:
        store, usage = self.store, self.store.usage()
        yield Metric(*KNOWN, float(len(store.known)))
        yield Metric(*LOADED, float(len(store.loaded)))
        yield Metric(*BYTES, float(store.num_bytes()))
        yield Metric(*LOADS, float(store.num_loads))
        yield Metric(*EVICTIONS, float(store.num_evictions))
        for name, count in usage.items():
            yield Metric(*REQUESTS, float(count), (("adapter", name),))
