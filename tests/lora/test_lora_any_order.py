"""The store in any order of calls."""

from __future__ import annotations

from typing import Any

from fake_disk import Disk, store_over
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from specserve_lora.errors import AdapterCapacityError, AdapterConflictError, UnknownAdapterError


class AnyOrder(RuleBasedStateMachine):
    """A model that keeps only what was promised: what is pinned is there, what is known can be had."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()
        self.store = store_over(self.disk, max_loaded=2, max_memory=50)
        self.known: dict[str, str] = {}
        self.pins: list[Any] = []

    @rule(name=st.sampled_from("abc"), version=st.sampled_from("123"), size=st.integers(1, 40), replace=st.booleans())
    def load(self, name: str, version: str, size: int, replace: bool) -> None:
        size = size if f"{name}@{version}" not in {p.id for p in self.pins} else 1
        before, content = dict(self.store.names()), self.disk.content.get(name)
        try:
            self.store.load(name, self.disk.write(name, version, size), replace=replace)
            assert replace or name not in self.known
            self.known[name] = f"{name}@{version}"
        except (AdapterCapacityError, AdapterConflictError):
            assert self.pins or name in self.known
            assert self.store.names() == before
            if content is not None:
                self.disk.content[name] = content

    @rule(name=st.sampled_from("abc"))
    def pin(self, name: str) -> None:
        try:
            pin = self.store.pin(name)
        except AdapterCapacityError:
            assert len({p.id for p in self.pins}) == 2 or self.pins
            return
        assert (pin is None) == (name not in self.known)
        if pin is not None:
            assert pin.id == self.known[name]
            self.pins.append(pin)

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        self.store.unpin(self.pins.pop(data.draw(st.integers(0, len(self.pins) - 1))))

    @rule(name=st.sampled_from("abc"))
    def unload(self, name: str) -> None:
        used = any(pin.name == name for pin in self.pins)
        try:
            self.store.unload(name)
            assert name in self.known
            assert not used
            del self.known[name]
        except UnknownAdapterError:
            assert name not in self.known
        except AdapterConflictError:
            assert used

    @invariant()
    def what_is_pinned_is_there(self) -> None:
        self.store.check_integrity()
        assert all(self.store.find(pin.id) is pin for pin in self.pins)
        assert self.store.names() == self.known
        counts = {name: sum(pin.name == name for pin in self.pins) for name in self.known}
        assert {name: n for name, n in self.store.usage().items() if n or name in self.known} == counts


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase
