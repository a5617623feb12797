"""`generate --explain`: the steps of a request as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.cli.draft_trace import DraftStep

COLUMNS = ("step", "context", "rows", "proposed", "by", "verified", "accepted", "tokens", "")
MOST = 200
"""Rows that are shown: the first and the last of a longer request."""


def drafts_table(steps: Sequence[DraftStep]) -> str:
    rows = [cells(step) for step in steps]
    if len(rows) > MOST:
        left_out = ("...", *("" for _ in COLUMNS[1:-1]), f"{len(rows) - MOST} steps left out")
        rows = [*rows[: MOST // 2], left_out, *rows[-MOST // 2 :]]
    widths = [max(len(row[i]) for row in (COLUMNS, *rows)) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)) + f"  {row[-1]}"
             for row in (COLUMNS, *rows)]  # fmt: skip
    return "\n".join(line.rstrip() for line in [*lines, summary(steps)])


def cells(step: DraftStep) -> tuple[str, ...]:
    numbers = (step.step, step.context, step.rows, step.proposed)
    return (*map(str, numbers), step.drafters, *map(str, (step.verified, step.accepted, step.tokens)), step.why)


def summary(steps: Sequence[DraftStep]) -> str:
    verified, accepted = sum(step.verified for step in steps), sum(step.accepted for step in steps)
    share = f", {accepted / verified:.0%} of them" if verified else ""
    return f"{len(steps)} steps; {verified} draft tokens verified, {accepted} accepted{share}."
