"""The flags of a command by subject: groups of one parser by their titles, so that several modules may add to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, _ArgumentGroup


class FlagGroups:
    """`groups["network"].add_argument(...)`. --help shows groups in the order in which they were first asked for."""

    def __init__(self, parser: ArgumentParser) -> None:
        self._parser = parser
        self._groups: dict[str, _ArgumentGroup] = {}

    def __getitem__(self, title: str) -> _ArgumentGroup:
        if title not in self._groups:
            self._groups[title] = self._parser.add_argument_group(title)
        return self._groups[title]
