"""One request's hold on one version of an adapter."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specserve_lora.eviction import Loaded
    from specserve_lora.store import AdapterStore


class Pin:
    """`release` lets go once, however often and from whatever thread it is called."""

    def __init__(self, store: AdapterStore, loaded: Loaded) -> None:
        self.store, self.loaded = store, loaded
        self.held = threading.Lock()
        """Never unlocked: whoever gets it is the one who lets go."""

    def release(self) -> None:
        if self.held.acquire(blocking=False):
            self.store.unpin(self.loaded)
