"""Tables and progress on a terminal, by rich."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import rich.progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

WIDTH_OF_FILES = 120
"""Columns where standard output is no terminal."""


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The first column is aligned to the left, the others to the right. Nothing is printed of no rows."""
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(title, style="bold", soft_wrap=True)
    console().print(table)
    console().print()


def console() -> Console:
    """Standard output, as it is now; text is printed as it is, without markup."""
    return Console(
        file=sys.stdout,
        markup=False,
        emoji=False,
        highlight=False,
        width=None if sys.stdout.isatty() else WIDTH_OF_FILES,
    )


class Progress:
    """A bar on standard error where that is a terminal."""

    def __init__(self, what: str, total: int = 0) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        errors = Console(file=sys.stderr, markup=False)
        self._bar = rich.progress.Progress(*columns, console=errors, disable=not sys.stderr.isatty(), transient=True)
        self._what, self._total = what, total

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task(self._what, total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, _: object = None) -> None:
        self._bar.advance(self._task)

    def extend(self, number: int) -> None:
        """So many more are to come."""
        self._total += number
        self._bar.update(self._task, total=self._total)
