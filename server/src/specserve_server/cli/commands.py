"""The commands of `specserve`: modules by their names in the entry-point group `specserve.commands`.

Owns how they are found and their order. A module that cannot be imported, or is no command, breaks that command alone.
"""

from __future__ import annotations

import argparse
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple, Protocol

from specserve.errors import ConfigError
from specserve.faults import FAULTS
from specserve.plugins.error_messages import unusable_entry_point
from specserve_server.cli import generate

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import Sequence
    from typing import NoReturn

GROUP = "specserve.commands"
OWN = {"generate": generate}
"""Those of this package, which need no entry point."""
NO_FLAGS = "\0"
"""No word begins with it, so every word is an argument."""
FIRST = ("serve", "generate", "plugins", "doctor")
"""In the order of --help; others follow by name."""


class Command(Protocol):
    """A module. It imports heavy ones when it runs, so that --help and other commands stay fast."""

    @property
    def EXAMPLES(self) -> Sequence[tuple[str, str]]:
        """Command lines for --help, with what they do."""

    def register(self, subparsers: _SubParsersAction[ArgumentParser]) -> None:
        """Add a parser whose default `run` takes the parsed arguments and returns the exit code."""


class BrokenCommand(NamedTuple):
    """Says when it is run why it cannot be used."""

    name: str
    why: str
    EXAMPLES: Sequence[tuple[str, str]] = ()

    def register(self, subparsers: _SubParsersAction[ArgumentParser]) -> None:
        parser = subparsers.add_parser(self.name, help="cannot be used", add_help=False, prefix_chars=NO_FLAGS)
        parser.add_argument("arguments", nargs=argparse.REMAINDER)
        parser.set_defaults(run=self.run)

    def run(self, args: Namespace) -> NoReturn:
        raise ConfigError(self.why)


def find_commands() -> list[Command]:
    points = {point.name: point for point in metadata.entry_points(group=GROUP) if point.name not in OWN}
    names = sorted({*OWN, *points}, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    return [OWN[name] if name in OWN else load(points[name]) for name in names]


def load(point: metadata.EntryPoint) -> Command:
    try:
        command: Command = point.load()
        _ = command.EXAMPLES, command.register
    except FAULTS as error:
        return BrokenCommand(point.name, unusable_entry_point(point, f"the command {point.name}", error))
    return command
