"""A disk whose content, speed and faults a test decides, and a store over it."""

from __future__ import annotations

import threading
from pathlib import Path

from specserve_lora.adapter import Adapter
from specserve_lora.adapter_dir import AdapterDir
from specserve_lora.errors import AdapterError
from specserve_lora.eviction import CacheLimits
from specserve_lora.store import AdapterStore


class Disk:
    """`content` by directory: a version and a size, or nothing."""

    def __init__(self) -> None:
        self.content: dict[str, tuple[str, int]] = {}
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()
        self.reads = 0

    def read(self, directory: AdapterDir) -> Adapter:
        self.reads += 1
        self.reached.set()
        assert self.open.wait(30)
        if directory.label not in self.content:
            raise AdapterError(f"there is no file {directory.label}")
        version, size = self.content[directory.label]
        return Adapter(version, {}, size)

    def write(self, label: str, version: str = "v1", size: int = 10) -> AdapterDir:
        self.content[label] = (version, size)
        return AdapterDir(Path(label), label, None)


def store_over(disk: Disk, *, max_loaded: int = 2, max_memory: int = 1000) -> AdapterStore:
    return AdapterStore(
        disk.read, lambda weights: object(), limits=CacheLimits(max_loaded, max_memory), base_name="base"
    )
