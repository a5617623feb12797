"""Rows by the name of their check."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve_workbench.doctor.rows import Row


def by_check(rows: Iterable[Row]) -> dict[str, Row]:
    """The first of each name."""
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(row.check, row)
    return found


def statuses(rows: Iterable[Row]) -> dict[str, str]:
    return {check: row.status for check, row in by_check(rows).items()}
