"""The progress of start-up, on a terminal."""

from __future__ import annotations

import sys


def report_progress(what: str, done: int, total: int) -> None:
    """One line on standard error that is overwritten; nothing where it is not a terminal."""
    if sys.stderr.isatty():
        end = "\n" if done >= total else ""
        print(f"\rspecserve: {what} {done}/{total}", end=end, file=sys.stderr, flush=True)
