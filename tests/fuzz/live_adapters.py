"""The adapters of the engine under test while requests run: pinned for requests, replaced, unloaded, loaded again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import RequestError
from specserve_lora.adapter_dir import unconfined_dir
from specserve_lora.observer import LoraObserver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from fuzz.building import Built
    from fuzz.plans import Event, Plan, RequestPlan


class Lease:
    """What a request holds while it runs."""

    def __init__(self, adapter: str, version: int, release: Callable[[], object] | None) -> None:
        self.adapter, self.version, self.release = adapter, version, release

    def end(self) -> None:
        if self.release is not None:
            self.release()


class LiveAdapters:
    """`paths`: directories by adapter and version."""

    def __init__(self, plan: Plan, built: Built, paths: Mapping[tuple[str, int], Path]) -> None:
        self.host, self.paths = built.host, paths
        stores = [observer.store for observer in built.engine.parts.observers if isinstance(observer, LoraObserver)]
        self.store = stores[0] if stores else None
        self.due: list[Event] = list(plan.events) if self.store else []
        self.versions = {adapter.name: 0 for adapter in plan.adapters}
        self.done: set[str] = set()
        """Kinds of events that happened."""
        self.num_refused = 0

    def advance(self, clock: int) -> None:
        """Do what is due by now, in order. What running requests do not allow yet is tried again next time."""
        while self.due and self.due[0].at <= clock:
            try:
                self.do(self.due[0])
            except RequestError:
                self.num_refused += 1
                return
            self.done.add(self.due.pop(0).do)

    def do(self, event: Event) -> None:
        assert self.store is not None
        name, version = event.name, self.versions[event.name]
        if event.do == "unload":
            self.store.unload(name)
        elif event.do == "load" and name not in self.store.known:  # it may have been replaced meanwhile
            self.store.load(name, unconfined_dir(str(self.paths[name, version])))
        elif event.do == "replace":
            self.store.load(name, unconfined_dir(str(self.paths[name, version + 1])), replace=True)
            self.versions[name] += 1

    def lease(self, request: RequestPlan) -> Lease | None:
        """None where the adapter is unloaded just now, or other requests use all the room there is."""
        if request.adapter is None:
            return Lease("", 0, None)
        version = self.versions[request.adapter]
        try:
            answer = self.host.single("resolve_model", name=request.adapter)
        except RequestError:
            answer = None
        if answer is None:
            self.num_refused += 1
            return None
        return Lease(answer[1].adapter, version, answer[1].release)

    @property
    def num_pins(self) -> int:
        return sum(adapter.num_pins for adapter in self.store.loaded.values()) if self.store else 0
