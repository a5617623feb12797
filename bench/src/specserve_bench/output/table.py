"""Tables and progress on a terminal, by rich."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[object], None]]:
    """A bar on standard error where that is a terminal. Yields what is called for each that is done."""
    errors = Console(file=sys.stderr, markup=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda _: bar.advance(task)
