"""The cores that the process may use, against the threads that it will have."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from specserve.control_group import cpu_quota
from specserve.host_cores import cores_with_time, usable_cores
from specserve_workbench.doctor.rows import Row, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_workbench.doctor.case import Case


def core_rows(case: Case) -> list[Row]:
    return rows_of(case, cores, threads, load)


def cores(case: Case) -> Iterator[Row]:
    usable, total, quota = usable_cores(), os.cpu_count() or 1, cpu_quota(case.root)
    found = f"{usable} of {total} usable"
    if quota is None:
        yield Row("cores", "ok", f"{found}, no quota", figures={"usable": usable, "total": total})
    else:
        figures = {"usable": usable, "total": total, "quota": quota}
        yield Row("cores", "ok", f"{found}, a quota of {quota:g} cores' time", figures=figures)


def threads(case: Case) -> Iterator[Row]:
    """Threads wait for each other several times in each layer, so that one without a core stops all."""
    room = cores_with_time(case.root)
    count = case.engine.threads or room
    found = f"{count} ({'--threads' if case.engine.threads else 'one per core that there is time for'})"
    figures = {"threads": count}
    if count > room:
        advice = f"threads without a core of their own stop the others: pass --threads {room}"
        yield Row("threads", "warning", f"{found}, with time for {room}", advice, figures)
    elif count < room:
        yield Row("threads", "note", f"{found}, with {room} cores", f"--threads {room} may be faster", figures)
    else:
        yield Row("threads", "ok", found, figures=figures)


def load(case: Case) -> Iterator[Row]:
    """Of the last minute; this program's own part is small by now."""
    average, usable = os.getloadavg()[0], usable_cores()
    found = f"{average:.1f} running on average of the last minute"
    if average > usable / 2:
        advice = "other programs use the cores: figures of the self-test are too low"
        yield Row("load", "note", found, advice, {"load": average})
    else:
        yield Row("load", "ok", found, figures={"load": average})
