"""The progress of loading a model, on a terminal."""

from __future__ import annotations

import sys


def report_progress(done: int, total: int) -> None:
    """One line on standard error that is overwritten; nothing where it is not a terminal."""
    if sys.stderr.isatty():
        end = "\n" if done >= total else ""
        print(f"\rspecserve: loading {done}/{total}", end=end, file=sys.stderr, flush=True)
