"""What a sweep measures: settings of the engine, under loads."""

from __future__ import annotations

from typing import NamedTuple

PLAIN = "off"
"""The setting without drafters."""


class Setting(NamedTuple):
    """The drafters that are enabled, in the order in which they propose."""

    drafters: tuple[str, ...]

    @property
    def name(self) -> str:
        return " + ".join(self.drafters) or PLAIN


class Cell(NamedTuple):
    """A load."""

    concurrency: int
    """Requests under way."""
    temperature: float

    def __str__(self) -> str:
        requests = "one request" if self.concurrency == 1 else f"{self.concurrency} requests"
        return f"{requests} at temperature {self.temperature:g}"


def settings_of(drafters: tuple[str, ...]) -> list[Setting]:
    """None, each, all."""
    every = [Setting(drafters)] if len(drafters) > 1 else []
    return [Setting(()), *(Setting((drafter,)) for drafter in drafters), *every]
