"""The adapters of one engine by name: which are known, which are in memory, and how many requests use each.

Owns names, versions and pins. A known adapter need not be loaded: the least recently used one that has no pin is
evicted for another, and is read again from its directory when it is next requested. Thread-safe; files are read under
a lock of their own, so no other call waits for a disk.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specserve.api import RequestError, adapter_id
from specserve_lora.errors import (
    AdapterConflictError,
    AdapterError,
    AdapterReloadError,
    UnknownAdapterError,
)
from specserve_lora.eviction import CacheLimits, LoadedAdapter, evictable, total_bytes
from specserve_lora.names import NAME_RULE, is_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve_lora.adapter import Adapter
    from specserve_lora.adapter_dir import AdapterDir

MAX_KNOWN = 65_536


@dataclass(frozen=True, slots=True)
class KnownAdapter:
    """Where a name's adapter is read from, and the id of its present version."""

    directory: AdapterDir
    id: str


class AdapterStore:
    """`read` and `pack` are slow and may raise; tests replace them. `free` gets what `pack` gave once nobody has the
    adapter any more. No adapter may be called `base_name`."""

    def __init__(
        self,
        read: Callable[[AdapterDir], Adapter],
        pack: Callable[[Any], Any],
        free: Callable[[Any], object] = bool,
        *,
        limits: CacheLimits,
        base_name: str = "",
    ) -> None:
        self.read, self.pack, self.free = read, pack, free
        self.limits, self.base_name = limits, base_name
        self.lock = threading.Lock()
        """Guards the fields below; held briefly."""
        self.load_lock = threading.Lock()
        """Held while a file is read and while `known` is changed. Acquired before `lock`."""
        self.known: dict[str, KnownAdapter] = {}
        self.loaded: dict[str, LoadedAdapter] = {}
        """By id: present versions of names, and replaced ones that requests still use."""
        self.clock = itertools.count()
        self.num_loads = self.num_evictions = 0

    # --- requests -----------------------------------------------------------------------------------

    def pin(self, name: str) -> LoadedAdapter | None:
        """The name's version, loaded if necessary, and kept until `unpin`; None for a name that is not known."""
        found = self.pin_loaded(name)
        if found is not None or name not in self.known:
            return found
        with self.load_lock:
            if (found := self.pin_loaded(name)) is not None:
                return found
            known = self.known.get(name)
            if known is None:
                return None
            self.check_capacity(0, None)
            try:
                adapter = self.read(known.directory)
            except RequestError as error:
                raise AdapterReloadError(f"adapter {name} was evicted and cannot be loaded again: {error}") from error
            return self.insert(name, known.directory, adapter, pins=1)

    def unpin(self, adapter: LoadedAdapter) -> None:
        """Once per pin. The last unpin of a version that was replaced drops it."""
        with self.lock:
            assert adapter.num_pins > 0, f"{adapter.id} has no pin"
            adapter.num_pins -= 1
            if not adapter.num_pins and not self.is_current(adapter):
                del self.loaded[adapter.id]

    def find(self, id: str) -> LoadedAdapter | None:
        """None where it is not loaded. Takes no lock."""
        return self.loaded.get(id)

    # --- what clients ask ---------------------------------------------------------------------------

    def load(self, name: str, directory: AdapterDir, *, replace: bool = False) -> None:
        """Make the name known and load it. `replace`: running requests keep the version that they have."""
        check_name(name, self.base_name)
        with self.load_lock:
            old = self.known.get(name)
            if old is not None and not replace:
                raise AdapterConflictError(
                    f"adapter {name} is loaded already. Pass load_inplace: true to replace it, or choose another name.",
                    param="lora_name",
                )
            if old is None and len(self.known) >= MAX_KNOWN:
                raise AdapterConflictError(f"{MAX_KNOWN} adapters are known already. Unload one.", param="lora_name")
            self.check_capacity(0, self.current_id(name))
            self.insert(name, directory, self.read(directory), pins=0)

    def unload(self, name: str) -> None:
        """Forget the name and free its weights."""
        with self.load_lock, self.lock:
            if name not in self.known:
                raise UnknownAdapterError(f"there is no adapter {name[:200]!r}.", param="lora_name")
            versions = [adapter for adapter in self.loaded.values() if adapter.name == name]
            if users := sum(adapter.num_pins for adapter in versions):
                raise AdapterConflictError(
                    f"adapter {name} is in use by {users} {'request' if users == 1 else 'requests'}. Unload it when "
                    "they have ended.",
                    param="lora_name",
                    code="adapter_in_use",
                )
            del self.known[name]
            for adapter in versions:
                del self.loaded[adapter.id]

    # --- what others show ---------------------------------------------------------------------------

    def names(self) -> dict[str, str]:
        """Known names and their ids."""
        with self.lock:
            return {name: known.id for name, known in self.known.items()}

    def usage(self) -> dict[str, int]:
        """Pins of every known name."""
        with self.lock:
            counts = dict.fromkeys(self.known, 0)
            for adapter in self.loaded.values():
                counts[adapter.name] = counts.get(adapter.name, 0) + adapter.num_pins
            return counts

    def num_bytes(self) -> int:
        with self.lock:
            return total_bytes(self.loaded.values())

    def check_integrity(self) -> None:
        """Invariants that hold between calls."""
        with self.lock:
            assert len(self.loaded) <= self.limits.max_loaded, (len(self.loaded), self.limits)
            assert total_bytes(self.loaded.values()) <= self.limits.max_memory
            for adapter in self.loaded.values():
                assert adapter.num_pins or self.is_current(adapter), f"{adapter.id} was replaced and is unused"

    # --- inside -------------------------------------------------------------------------------------

    def pin_loaded(self, name: str) -> LoadedAdapter | None:
        with self.lock:
            known = self.known.get(name)
            found = self.loaded.get(known.id) if known is not None else None
            if found is not None:
                found.num_pins += 1
                found.last_used = next(self.clock)
            return found

    def insert(self, name: str, directory: AdapterDir, adapter: Adapter, *, pins: int) -> LoadedAdapter:
        """Make this the name's present version. The caller holds `load_lock`."""
        id = adapter_id(name, adapter.version)
        with self.lock:
            loaded = self.loaded.get(id)
        if loaded is None:  # `load_lock` keeps every other thread from inserting it meanwhile
            self.check_capacity(adapter.num_bytes, self.current_id(name))
            packed = self.pack(adapter.weights)
            loaded = LoadedAdapter(name, id, packed, adapter.rank, adapter.num_bytes, 0)
            weakref.finalize(loaded, self.free, packed).atexit = False
        with self.lock:
            loaded.last_used = next(self.clock)
            loaded.num_pins += pins
            if id not in self.loaded:
                self.evict_for(adapter.num_bytes, self.current_id(name))
                self.loaded[id] = loaded
                self.num_loads += 1
            previous, self.known[name] = self.known.get(name), KnownAdapter(directory, id)
            if previous is not None and previous.id != id:
                self.drop_if_unused(previous.id)
            return loaded

    def check_capacity(self, num_bytes: int, replaced: str | None) -> None:
        with self.lock:
            evictable(self.loaded.values(), num_bytes, replaced, self.limits)

    def evict_for(self, num_bytes: int, replaced: str | None) -> None:
        for adapter in evictable(self.loaded.values(), num_bytes, replaced, self.limits):
            del self.loaded[adapter.id]
            self.num_evictions += adapter.id != replaced

    def current_id(self, name: str) -> str | None:
        """Of the name's present version, which another one would replace."""
        known = self.known.get(name)
        return None if known is None else known.id

    def drop_if_unused(self, id: str) -> None:
        loaded = self.loaded.get(id)
        if loaded is not None and not loaded.num_pins:
            del self.loaded[id]

    def is_current(self, adapter: LoadedAdapter) -> bool:
        return self.current_id(adapter.name) == adapter.id


def check_name(name: str, base_name: str) -> None:
    if not is_name(name):
        raise AdapterError(f"lora_name must be {NAME_RULE}; got {name[:200]!r}.", param="lora_name")
    if name == base_name:
        raise AdapterConflictError(f"{name} is the base model's name. Choose another.", param="lora_name")
