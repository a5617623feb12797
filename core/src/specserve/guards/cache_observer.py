"""A plugin's cache observer, made safe to call: changes that it fails to take are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.faults import FaultLog
    from specserve.protocols import CacheChange, CacheObserver


class GuardedCacheObserver:
    def __init__(self, plugin: str, observer: CacheObserver, log: FaultLog) -> None:
        self.observer = observer
        self.part = log.part(plugin, "cache observer", code=observer.changed)
        self.stop_part = log.part(plugin, "cache observer's stop", needed=True, code=observer.stop)

    def changed(self, changes: Sequence[CacheChange]) -> None:
        self.part.call(None, self.observer.changed, changes)

    def stop(self) -> None:
        """Also of one that is switched off: it may hold sockets and threads."""
        self.stop_part.call(None, self.observer.stop)
