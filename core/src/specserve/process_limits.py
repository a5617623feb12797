"""What the process may still allocate under its own limits: `ulimit -v` and `ulimit -d`, or a supervisor's.

Linux refuses a mapping that would exceed them, however much memory is free. `root`: where the system's files are.
"""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, NamedTuple

from specserve.system_files import SYSTEM, read_system_file

if TYPE_CHECKING:
    from pathlib import Path


class Limit(NamedTuple):
    name: str
    """As a shell sets it."""
    resource: int
    field: int
    """The field of /proc/self/statm that counts, in pages."""


LIMITS = (Limit("ulimit -v", resource.RLIMIT_AS, 0), Limit("ulimit -d", resource.RLIMIT_DATA, 5))


class Room(NamedTuple):
    num_bytes: int
    limit: str


def address_room(root: Path = SYSTEM) -> Room | None:
    """The least that a limit leaves, never below 0; None where there is no limit, or the system does not count."""
    used = read_system_file(root / "proc/self/statm").split()
    rooms = []
    for name, kind, field in LIMITS:
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY and field < len(used) and used[field].isdecimal():
            rooms.append(Room(max(soft - int(used[field]) * os.sysconf("SC_PAGE_SIZE"), 0), name))
    return min(rooms, default=None)
