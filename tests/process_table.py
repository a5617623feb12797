"""What the system knows of processes, from /proc. Standard library only."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE = 60.0
PROC = Path("/proc")


def command_line(pid: int) -> str:
    """Its words with blanks between them; empty where it has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def state_and_parent(pid: int) -> tuple[str, int]:
    """`("Z", 0)` where it has ended: so is a process that has ended and that nobody has waited for."""
    try:
        state, parent, *_ = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "Z", 0
    return state, int(parent)


def is_running(pid: int) -> bool:
    return state_and_parent(pid)[0] != "Z"


def descendants(pid: int) -> list[int]:
    """Its children, theirs, and so on."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            children.setdefault(state_and_parent(int(entry.name))[1], []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        own = children.get(waiting.pop(), [])
        found += own
        waiting += own
    return found


def wait_until_gone(pids: Sequence[int]) -> None:
    until = time.monotonic() + PATIENCE
    while left := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < until, f"these still run: {[command_line(pid) for pid in left]}"
        time.sleep(0.01)
