"""What the engine calls: changes of the prefix cache go to the publisher, and /metrics gets what it counts."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from specserve.api import CacheObserver, Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import CacheChange
    from specserve_kv_events.publisher import Publisher


class PublishingObserver(CacheObserver):
    """An engine that is forgotten instead of stopped ends its publisher, too, and so does the process's end."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.stop_once = weakref.finalize(self, publisher.stop)

    def changed(self, changes: Sequence[CacheChange]) -> None:
        self.publisher.publish(changes)

    def stop(self) -> None:
        self.stop_once()


class PublisherMetrics:
    """What the engine tells of steps is not published."""

    observe = None

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher

    def metrics(self) -> list[Metric]:
        publisher = self.publisher
        return [
            Metric("specserve_kv_events_published", "KV events numbered", "counter", publisher.num_events),
            Metric("specserve_kv_events_dropped", "Batches dropped unsent", "counter", publisher.num_dropped),
            Metric(
                "specserve_kv_events_last_sequence",
                "Number of the newest batch; -1 before the first",
                "gauge",
                publisher.next_sequence - 1,
            ),
        ]
