"""Which rows of a batch are under which adapter, from its query lengths and its requests' namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.lora_plan import LoraPlan, Segment
from specserve.namespaces import strip_salt
from specserve_lora.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch.batch import Batch
    from specserve_lora.eviction import LoadedAdapter


class SegmentPlanner:
    """`specserve.protocols.BoundedLoraPlanner`. `find` gives a namespace's adapter, or None where it is not loaded."""

    def __init__(self, find: Callable[[str], LoadedAdapter | None], max_adapters: int) -> None:
        self.find, self.max_adapters = find, max_adapters

    def plan(self, batch: Batch) -> LoraPlan | None:
        """None where every row is the base model's."""
        wanted = [span.adapter for span in batch.spans]
        if not any(wanted):
            return None
        segments: list[Segment] = []
        adapters = {name: find_adapter(name, self.find) for name in dict.fromkeys(wanted)}
        packed = {name: None if adapter is None else adapter.packed for name, adapter in adapters.items()}
        for name, begin, length in zip(wanted, batch.row_offsets, batch.query_lens, strict=True):
            adapter = packed[name]
            if segments and segments[-1].adapter is adapter:
                segments[-1] = segments[-1]._replace(end=begin + length)
            else:
                segments.append(Segment(begin, begin + length, adapter))
        return LoraPlan(tuple(segments), max(adapter.rank for adapter in adapters.values() if adapter is not None))


def find_adapter(name: str, find: Callable[[str], LoadedAdapter | None]) -> LoadedAdapter | None:
    """None for the base model."""
    if not name:
        return None
    adapter = find(name)
    if adapter is None:
        raise RuntimeError(
            f"{no_adapter(name)} It was loaded when the request was checked; its pin was released early."
        )
    return adapter


def check_namespace(namespace: str, find: Callable[[str], LoadedAdapter | None]) -> None:
    """Refuse a request whose namespace names an adapter that is not loaded. The base model's namespace names none."""
    name = strip_salt(namespace)
    if name and find(name) is None:
        raise AdapterError(no_adapter(name), param="namespace")


def no_adapter(name: str) -> str:
    return (
        f"a request's namespace {name[:200]!r} is no loaded adapter, and it must not be served by the base model. "
        "A namespace comes from lora's resolve_model, whose pin is kept until the engine has forgotten the request."
    )
