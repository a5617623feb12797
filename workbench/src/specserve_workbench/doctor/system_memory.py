"""Memory, and the limits of the process on it and on open files."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

from specserve.control_group import memory_limit
from specserve.host_memory import HUGE_PAGE_SETTING, free_host_memory, has_huge_pages, total_memory
from specserve_workbench.doctor.rows import Row, bytes_text, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_workbench.doctor.case import Case

LITTLE = 2**30
OWN_FILES = 64
"""Open files of the server itself, at most: libraries, weights, sockets."""


def memory_rows(case: Case) -> list[Row]:
    return rows_of(case, memory, huge_pages, locked_memory, open_files)


def memory(case: Case) -> Iterator[Row]:
    total, limit, free = total_memory(case.root), memory_limit(case.root), free_host_memory().num_bytes
    found = f"{bytes_text(free)} free of {bytes_text(total)}"
    figures: dict[str, float] = {"free": free, "total": total}
    if limit is not None and limit < total:
        found += f", {bytes_text(limit)} for this control group"
        figures["limit"] = limit
    if free < LITTLE:
        yield Row("memory", "warning", found, "end other programs, or raise the limit", figures)
    else:
        yield Row("memory", "ok", found, figures=figures)


def huge_pages(case: Case) -> Iterator[Row]:
    given = has_huge_pages()
    if given is None:
        yield Row("huge pages", "note", "the system has no setting for them")
    elif given:
        yield Row("huge pages", "ok", "given to memory that asks for them")
    else:
        advice = f"steps over long contexts are slower: write madvise to {HUGE_PAGE_SETTING}, as root"
        yield Row("huge pages", "warning", "switched off", advice)


def locked_memory(case: Case) -> Iterator[Row]:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    found = "no limit" if soft == resource.RLIM_INFINITY else f"at most {bytes_text(soft)}"
    yield Row("locked memory", "ok", f"{found}; specserve locks none")


def open_files(case: Case) -> Iterator[Row]:
    """Each client that is connected has one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    running, waiting = case.engine.max_num_seqs, case.engine.max_waiting
    if soft == resource.RLIM_INFINITY or soft >= running + waiting + OWN_FILES:
        limit = "no limit" if soft == resource.RLIM_INFINITY else f"at most {soft}"
        yield Row("open files", "ok", f"{limit}; each connected client has one")
        return
    most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    found = f"at most {soft}, with up to {running} running and {waiting} waiting requests"
    advice = f"raise it before the start: ulimit -n N, at most {most} here"
    yield Row("open files", "warning" if soft < running + OWN_FILES else "note", found, advice, {"limit": soft})
