"""Which rows of a batch are under which adapter, from its query lengths and its spans' adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import LoraPlanner
from specserve.api.batch import LoraPlan, Segment
from specserve_lora.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.api.batch import Batch
    from specserve_lora.eviction import LoadedAdapter


class SegmentPlanner(LoraPlanner):
    """`find` gives an id's adapter, or None where it is not loaded."""

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


def check_adapter(id: str, find: Callable[[str], LoadedAdapter | None]) -> None:
    """Refuse a request whose adapter is not loaded."""
    if id and find(id) is None:
        raise AdapterError(no_adapter(id), param="adapter")


def no_adapter(name: str) -> str:
    return (
        f"a request's adapter {name[:200]!r} is not loaded, and it must not be served by the base model. "
        "It comes from lora's resolve_model, whose pin is kept until the engine has forgotten the request."
    )
