"""Memory under `ulimit -v`, `ulimit -d` and in control groups: what is free, and what is told where that is little."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from specserve import host_memory, process_limits
from specserve.engine.lack_of_memory import is_lack_of_memory, lack_of_memory_told
from specserve.errors import ConfigError, ModelError
from specserve.host_memory import FreeMemory, free_host_memory, free_pages_memory
from specserve.process_limits import Room, address_room

if TYPE_CHECKING:
    from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
GIB = 2**30
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limits are Linux's")
UNDER_A_LIMIT = """
import resource, sys
import specserve.engine.assembly
from specserve.process_limits import LIMITS
from specserve.errors import ConfigError
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request

model, name, room = sys.argv[1], sys.argv[2], int(sys.argv[3])
limit = next(each for each in LIMITS if each.name == name)
used = int(open("/proc/self/statm").read().split()[limit.field]) * resource.getpagesize()
resource.setrlimit(limit.resource, (used + room, resource.getrlimit(limit.resource)[1]))
try:
    engine = make_engine(model, kv_memory=sys.argv[4] if sys.argv[4:] else None, max_num_seqs=100000).engine
except ConfigError as error:
    sys.exit(f"refused: {error}")
run_requests(engine, [toy_request("a", range(1, 5), max_tokens=4)])
print(engine.parts.cache.num_blocks)
"""


def limits(monkeypatch: pytest.MonkeyPatch, **soft: int) -> None:
    """No others than these, in bytes."""
    by_kind = {getattr(resource, f"RLIMIT_{name}"): value for name, value in soft.items()}
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (by_kind.get(kind, unlimited), unlimited))


def used(root: Path, pages: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/statm").write_text(pages)
    return root


def test_a_limit_leaves_what_is_not_used_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = used(tmp_path, "1000 1 1 1 0 300 0")
    assert address_room(root) is None
    limits(monkeypatch, AS=1500 * PAGE)
    assert address_room(root) == Room(500 * PAGE, "ulimit -v")
    limits(monkeypatch, AS=1500 * PAGE, DATA=310 * PAGE)
    assert address_room(root) == Room(10 * PAGE, "ulimit -d")
    limits(monkeypatch, AS=999 * PAGE)
    assert address_room(root) == Room(0, "ulimit -v")


def test_a_system_that_does_not_count_has_no_such_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limits(monkeypatch, AS=GIB)
    assert address_room(tmp_path) is None


@pytest.mark.parametrize(
    ("group", "process", "free"),
    [
        (None, None, FreeMemory(8 * GIB, "of the system")),
        (3 * GIB, None, FreeMemory(3 * GIB, "in this control group")),
        (3 * GIB, Room(GIB, "ulimit -v"), FreeMemory(GIB, "ulimit -v")),
        (-5, Room(GIB, "ulimit -v"), FreeMemory(0, "in this control group")),
    ],
)
def test_the_strictest_bound_counts_and_is_named(
    monkeypatch: pytest.MonkeyPatch, group: int | None, process: Room | None, free: FreeMemory
) -> None:
    monkeypatch.setattr(host_memory, "available_memory", lambda: 8 * GIB)
    monkeypatch.setattr(host_memory, "memory_room", lambda: group)
    monkeypatch.setattr(host_memory, "address_room", lambda: process)
    assert free_host_memory() == free
    assert free_pages_memory() == (8 * GIB if group is None else max(group, 0)), "a limit on mappings is none on pages"


def under_a_limit(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", UNDER_A_LIMIT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@linux_only
@pytest.mark.parametrize("name", [limit.name for limit in process_limits.LIMITS])
def test_the_cache_is_sized_within_the_limits_of_the_process(toy_model: Path, name: str) -> None:
    done = under_a_limit(str(toy_model), name, str(GIB))
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 2


@linux_only
def test_a_cache_that_exceeds_the_limit_names_it(toy_model: Path) -> None:
    done = under_a_limit(str(toy_model), "ulimit -v", str(GIB), "3G")
    assert done.returncode == 1
    assert "no room for a KV cache" in done.stderr
    assert "are free (ulimit -v)" in done.stderr


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Cannot allocate memory (os error 12)"),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("can't start new thread"),
    ],
)
def test_a_lack_of_memory_is_told_with_what_is_free(error: Exception) -> None:
    told = r"not enough memory to load model some/model: about .* bytes are free"
    with pytest.raises(ConfigError, match=told), lack_of_memory_told("some/model", "cpu"):
        raise error


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ModelError("truncated"), OSError(2, "no such file")])
def test_other_errors_pass(error: Exception) -> None:
    assert not is_lack_of_memory(error)
    with pytest.raises(type(error)) as raised, lack_of_memory_told("some/model", "cpu"):
        raise error
    assert raised.value is error
