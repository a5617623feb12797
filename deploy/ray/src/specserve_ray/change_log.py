"""The changes that were made, so that replicas which start later make them, too.

Only the last change of each name counts. Data that one process owns and others copy; knows neither Ray nor HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve_ray.change_routes import Change

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_REMOVALS = 1000
"""Removals are for replicas that missed them; older ones are dropped."""


class MadeChange(msgspec.Struct, frozen=True):
    number: int
    """From 1, in the order in which they were made."""
    change: Change


class ChangeLog:
    """`number` is that of the last change; 0 without any."""

    def __init__(self) -> None:
        self.number = 0
        self.made: dict[str, MadeChange] = {}
        """By what they change, in order of their numbers."""

    def last(self, what: str) -> Change | None:
        found = self.made.get(what)
        return None if found is None else found.change

    def add(self, made: MadeChange) -> None:
        """A number that is lower than the last one is ignored: its change was replaced or is here already."""
        if made.number <= self.number:
            return
        self.number = made.number
        self.made.pop(made.change.what, None)
        self.made[made.change.what] = made
        removals = [what for what, each in self.made.items() if each.change.removes]
        for what in removals[:-MAX_REMOVALS]:
            del self.made[what]

    def since(self, number: int) -> Sequence[MadeChange]:
        """In order."""
        return [made for made in self.made.values() if made.number > number]
