"""With --graphs auto, the best graphs that the requested plugins can run with.

A plugin that conflicts with full or piecewise graphs is no reason to refuse a start that asked for neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from specserve.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.config import EngineConfig

T = TypeVar("T")
FROM_BEST = ("full", "piecewise", "none")


class Attempt(NamedTuple):
    """A line for the banner where a better mode was left out."""

    config: EngineConfig
    notes: tuple[str, ...]


def with_best_graphs(config: EngineConfig, start: Callable[[EngineConfig], T]) -> tuple[Attempt, T]:
    """What `start` gives for the first mode that it does not refuse. Raises its error of the best mode."""
    if config.graphs != "auto":
        return Attempt(config, ()), start(config)
    modes = FROM_BEST[FROM_BEST.index(config.graph_mode) :]
    refused: PluginError | None = None
    for mode in modes:
        tried = msgspec.structs.replace(config, graphs=mode)
        try:
            started = start(tried)
        except PluginError as error:
            refused = refused or error
            continue
        notes = () if refused is None else (f"graphs are {mode} and not {modes[0]}: {refused}",)
        return Attempt(tried, notes), started
    assert refused is not None, "at least one mode was tried"
    raise refused
