"""The adapters of one engine by name: which are known, which are in memory, and how many requests use each.

Owns names, versions, pins and room. An adapter that is known need not be loaded: the least recently used one that no
request uses makes room, and is read again from its path when it is asked for. Called from any thread; a file is read
under a lock of its own, so nobody else waits for a disk.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specserve.errors import RequestError
from specserve.namespaces import adapter_namespace
from specserve_lora.errors import (
    AdapterConflictError,
    AdapterError,
    LostAdapterError,
    UnknownAdapterError,
)
from specserve_lora.eviction import Limits, Loaded, bytes_of, victims
from specserve_lora.names import NAME_RULE, is_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve_lora.adapter import Adapter
    from specserve_lora.adapter_dir import AdapterDir

MAX_KNOWN = 65_536


@dataclass(frozen=True, slots=True)
class Known:
    """Where a name's adapter is read from, and the namespace of the version that it had last."""

    directory: AdapterDir
    namespace: str


class AdapterStore:
    """`read` and `pack` are slow and may raise; tests give others. `base` is the one name that no adapter may have."""

    def __init__(
        self,
        read: Callable[[AdapterDir], Adapter],
        pack: Callable[[Any], Any],
        *,
        limits: Limits,
        base: str = "",
    ) -> None:
        self.read, self.pack, self.limits, self.base = read, pack, limits, base
        self.lock = threading.Lock()
        """Held for a moment, around every look at what follows."""
        self.reading = threading.Lock()
        """Held while a file is read, and by whoever changes `known`. Taken before `lock`."""
        self.known: dict[str, Known] = {}
        self.loaded: dict[str, Loaded] = {}
        """By namespace: versions that names have, and older ones that requests still use."""
        self.clock = itertools.count()
        self.num_loads = self.num_evictions = 0

    # --- requests -----------------------------------------------------------------------------------

    def pin(self, name: str) -> Loaded | None:
        """The name's version, loaded if need be, and kept until `unpin`; None for a name that is not known."""
        found = self.pin_loaded(name)
        if found is not None or name not in self.known:
            return found
        with self.reading:
            if (found := self.pin_loaded(name)) is not None:
                return found
            known = self.known.get(name)
            if known is None:
                return None
            self.check_room(0, None)
            try:
                adapter = self.read(known.directory)
            except RequestError as error:
                raise LostAdapterError(f"adapter {name} was evicted and cannot be loaded again: {error}") from error
            return self.keep(name, known.directory, adapter, pins=1)

    def unpin(self, loaded: Loaded) -> None:
        """Once per pin. The last pin of a version that its name no longer has drops it."""
        with self.lock:
            assert loaded.pins > 0, f"{loaded.namespace} has no pin to undo"
            loaded.pins -= 1
            if not loaded.pins and not self.is_current(loaded):
                del self.loaded[loaded.namespace]

    def packed(self, wanted: str) -> Any:
        """The weights of a namespace as the kernels read them; None where it is not loaded. Takes no lock."""
        found = self.loaded.get(wanted)
        return None if found is None else found.packed

    # --- what clients ask ---------------------------------------------------------------------------

    def load(self, name: str, directory: AdapterDir, *, replace: bool = False) -> None:
        """Make the name known and load it. `replace`: requests that run keep the version that they have."""
        check_name(name, self.base)
        with self.reading:
            old = self.known.get(name)
            if old is not None and not replace:
                raise AdapterConflictError(
                    f"adapter {name} is loaded already. Pass load_inplace: true to replace it, or choose another name.",
                    param="lora_name",
                )
            if old is None and len(self.known) >= MAX_KNOWN:
                raise AdapterConflictError(f"{MAX_KNOWN} adapters are known already. Unload one.", param="lora_name")
            self.check_room(0, self.replaced(name))
            self.keep(name, directory, self.read(directory), pins=0)

    def unload(self, name: str) -> None:
        """Forget the name and free its weights."""
        with self.reading, self.lock:
            if name not in self.known:
                raise UnknownAdapterError(f"there is no adapter {name[:200]!r}.", param="lora_name")
            own = [loaded for loaded in self.loaded.values() if loaded.name == name]
            if users := sum(loaded.pins for loaded in own):
                raise AdapterConflictError(
                    f"adapter {name} is in use by {users} {'request' if users == 1 else 'requests'}. Unload it when "
                    "they have ended.",
                    param="lora_name",
                    code="adapter_in_use",
                )
            del self.known[name]
            for loaded in own:
                del self.loaded[loaded.namespace]

    # --- what others show ---------------------------------------------------------------------------

    def names(self) -> dict[str, str]:
        """Known names and their namespaces."""
        with self.lock:
            return {name: known.namespace for name, known in self.known.items()}

    def usage(self) -> dict[str, int]:
        """Requests by name, of every known name."""
        with self.lock:
            counts = dict.fromkeys(self.known, 0)
            for loaded in self.loaded.values():
                counts[loaded.name] = counts.get(loaded.name, 0) + loaded.pins
            return counts

    def num_bytes(self) -> int:
        with self.lock:
            return bytes_of(self.loaded.values())

    def check_integrity(self) -> None:
        """What always holds while nobody is inside."""
        with self.lock:
            assert len(self.loaded) <= self.limits.max_loaded, (len(self.loaded), self.limits)
            assert bytes_of(self.loaded.values()) <= self.limits.max_memory
            for loaded in self.loaded.values():
                assert loaded.pins or self.is_current(loaded), f"{loaded.namespace} is nobody's"

    # --- inside -------------------------------------------------------------------------------------

    def pin_loaded(self, name: str) -> Loaded | None:
        with self.lock:
            known = self.known.get(name)
            found = self.loaded.get(known.namespace) if known is not None else None
            if found is not None:
                found.pins += 1
                found.used = next(self.clock)
            return found

    def keep(self, name: str, directory: AdapterDir, adapter: Adapter, *, pins: int) -> Loaded:
        """The adapter is what the name has from now on. The caller holds `reading`."""
        own = adapter_namespace(name, adapter.version)
        with self.lock:
            loaded = self.loaded.get(own)
        if loaded is None:  # and nobody else adds it: they would hold `reading`
            self.check_room(adapter.num_bytes, self.replaced(name))
            loaded = Loaded(name, own, self.pack(adapter.weights), adapter.num_bytes, 0)
        with self.lock:
            loaded.used = next(self.clock)
            loaded.pins += pins
            if own not in self.loaded:
                self.make_room(adapter.num_bytes, self.replaced(name))
                self.loaded[own] = loaded
                self.num_loads += 1
            previous, self.known[name] = self.known.get(name), Known(directory, own)
            if previous is not None and previous.namespace != own:
                self.drop_if_unused(previous.namespace)
            return loaded

    def check_room(self, num_bytes: int, leaving: str | None) -> None:
        with self.lock:
            victims(self.loaded.values(), num_bytes, leaving, self.limits)

    def make_room(self, num_bytes: int, leaving: str | None) -> None:
        for victim in victims(self.loaded.values(), num_bytes, leaving, self.limits):
            del self.loaded[victim.namespace]
            self.num_evictions += victim.namespace != leaving

    def replaced(self, name: str) -> str | None:
        """The namespace that the name gives up when it gets another version."""
        known = self.known.get(name)
        return None if known is None else known.namespace

    def drop_if_unused(self, old: str) -> None:
        loaded = self.loaded.get(old)
        if loaded is not None and not loaded.pins:
            del self.loaded[old]

    def is_current(self, loaded: Loaded) -> bool:
        known = self.known.get(loaded.name)
        return known is not None and known.namespace == loaded.namespace


def check_name(name: str, base: str) -> None:
    if not is_name(name):
        raise AdapterError(f"lora_name must be {NAME_RULE}; got {name[:200]!r}.", param="lora_name")
    if name == base:
        raise AdapterConflictError(f"{name} is the base model's name. Choose another.", param="lora_name")
