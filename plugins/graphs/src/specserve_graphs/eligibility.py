"""Whether a step may be replayed. Plugins are asked once for each shape, and every reason is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.api import GraphMode, GraphShape

MOST_SHAPES = 4096
"""Decisions that are kept; the oldest is forgotten for another one."""
MOST_REASONS = 64
"""Different reasons of plugins; further ones are counted as one, so that labels of metrics stay few."""
OTHER_REASONS = "other reasons of plugins"


class Eligibility:
    """`ask`: the reasons of all plugins that decline."""

    def __init__(self, ask: Callable[[GraphShape], Sequence[str]]) -> None:
        self.ask = ask
        self.decisions: dict[GraphShape, str] = {}
        self.reasons: set[str] = set()

    def declined(self, shape: GraphShape) -> str:
        """Why plugins decline; empty where none does."""
        if shape not in self.decisions:
            if len(self.decisions) >= MOST_SHAPES:
                del self.decisions[next(iter(self.decisions))]
            self.decisions[shape] = self.bounded("; ".join(self.ask(shape)))
        return self.decisions[shape]

    def bounded(self, reason: str) -> str:
        if not reason or reason in self.reasons:
            return reason
        if len(self.reasons) >= MOST_REASONS:
            return OTHER_REASONS
        self.reasons.add(reason)
        return reason


def no_graphs(attention: str, mode: GraphMode) -> str:
    """The reason where a backend of this name does not serve such graphs."""
    return f"attention {attention} has no {mode} graphs"


def both(one: str, other: str) -> str:
    """The reasons against two modes."""
    return other if not one or one == other else f"{one}; {other}"
