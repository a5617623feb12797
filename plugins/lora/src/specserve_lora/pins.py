"""One request's pin on one version of an adapter."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specserve_lora.eviction import LoadedAdapter
    from specserve_lora.store import AdapterStore


class Pin:
    """`release` unpins once, however often and from whatever thread it is called."""

    def __init__(self, store: AdapterStore, adapter: LoadedAdapter) -> None:
        self.store, self.adapter = store, adapter
        self.released = threading.Lock()
        """Acquired by the first release and never freed."""

    def release(self) -> None:
        if self.released.acquire(blocking=False):
            self.store.unpin(self.adapter)
