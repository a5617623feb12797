"""The rows of a report, and how checks that raise become rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from specserve.errors import SpecserveError
from specserve.faults import FAULTS
from specserve.plugins.error_messages import describe_error
from specserve_workbench.doctor.needed import UnknownError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from specserve_workbench.doctor.case import Case

    Check = Callable[[Case], Iterable["Row"]]

Status = Literal["ok", "note", "warning", "failed"]
STATUSES: tuple[Status, ...] = ("ok", "note", "warning", "failed")


class Row(msgspec.Struct, frozen=True):
    """One finding. `advice`: what to do; empty where there is nothing to do, or where `found` says it. `figures`: what
    was measured, for programs."""

    check: str
    status: Status
    found: str
    advice: str = ""
    figures: Mapping[str, float] = {}


class Section(msgspec.Struct, frozen=True):
    name: str
    rows: list[Row]


def rows_of(case: Case, *checks: Check) -> list[Row]:
    """The rows of every check. One that raises has a failed row, named like its function, after those that it gave."""
    rows: list[Row] = []
    for check in checks:
        name = check.__name__.replace("_", " ")
        try:
            for row in check(case):
                rows.append(row)  # one by one: those before an error count
        except UnknownError as error:
            rows.append(Row(name, "note", f"not checked: {error}."))
        except FAULTS as error:
            rows.append(failure(name, error))
    return rows


def failure(name: str, error: BaseException) -> Row:
    """The messages of errors that are raised on purpose say what to do."""
    if isinstance(error, SpecserveError):
        return Row(name, "failed", one_line(str(error)))
    return Row(name, "failed", f"the check raised {one_line(describe_error(error))}")


def one_line(text: str) -> str:
    return " ".join(text.split())


def bytes_text(size: float) -> str:
    """`1.5 GiB`, `27 MiB`."""
    if size >= 2**30:
        return f"{size / 2**30:.1f} GiB"
    return f"{size / 2**20:.0f} MiB" if size >= 2**20 else f"{size / 2**10:.0f} KiB"
