"""What a control group leaves of the machine's cores and memory, read from files as the system writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from specserve import host_cores, host_memory
from specserve.config import EngineConfig
from specserve.control_group import memory_limit, memory_room
from specserve.engine.resolve_config import resolve_config
from specserve.host_cores import cores_with_time

if TYPE_CHECKING:
    from pathlib import Path

GIB = 2**30


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


OF_VERSION_2 = {
    "proc/self/cgroup": "0::/pod/engine\n",
    "sys/fs/cgroup/pod/engine/memory.max": "max\n",
    "sys/fs/cgroup/pod/memory.max": f"{8 * GIB}\n",
    "sys/fs/cgroup/pod/memory.current": f"{7 * GIB}\n",
    "sys/fs/cgroup/pod/memory.stat": f"anon 1\ninactive_file {4 * GIB}\nactive_file 5\n",
}
OF_VERSION_1 = {
    "proc/self/cgroup": "5:memory:/engine\n4:cpu:/\n",
    "sys/fs/cgroup/memory/engine/memory.limit_in_bytes": str(8 * GIB),
    "sys/fs/cgroup/memory/engine/memory.usage_in_bytes": str(6 * GIB),
    "sys/fs/cgroup/memory/engine/memory.stat": f"inactive_file 5\ntotal_inactive_file {GIB}\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**63 - 4096),
    "sys/fs/cgroup/memory/memory.usage_in_bytes": str(60 * GIB),
}


@pytest.mark.parametrize(
    ("files", "limit", "room"),
    [
        (OF_VERSION_2, 8 * GIB, 5 * GIB),
        (OF_VERSION_1, 8 * GIB, 3 * GIB),
        (OF_VERSION_2 | {"sys/fs/cgroup/pod/memory.current": "rubbish"}, 8 * GIB, 8 * GIB),
        (OF_VERSION_2 | {"sys/fs/cgroup/pod/memory.stat": ""}, 8 * GIB, GIB),
        ({}, None, None),
        ({"proc/self/cgroup": "0::/\n"}, None, None),
    ],
    ids=["version 2", "version 1", "unknown usage", "no statistics", "no groups", "no limit"],
)
def test_the_strictest_limit_on_memory_holds(
    tmp_path: Path, files: dict[str, str], limit: int | None, room: int | None
) -> None:
    root = written(tmp_path, files)
    assert (memory_limit(root), memory_room(root)) == (limit, room)


@pytest.mark.parametrize(("room", "expected"), [(None, 5 * GIB), (2 * GIB, 2 * GIB), (9 * GIB, 5 * GIB), (-1, 0)])
def test_free_memory_is_within_the_group(monkeypatch: pytest.MonkeyPatch, room: int | None, expected: int) -> None:
    monkeypatch.setattr(host_memory, "available_memory", lambda: 5 * GIB)
    monkeypatch.setattr(host_memory, "memory_room", lambda: room)
    monkeypatch.setattr(host_memory, "address_room", lambda: None)
    assert host_memory.free_host_memory().num_bytes == expected


@pytest.mark.parametrize(("quota", "expected"), [(None, 4), (2.9, 2), (0.5, 1), (16.0, 4)])
def test_an_engine_has_no_more_threads_than_its_group_has_time_for(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, expected: int
) -> None:
    monkeypatch.setattr(host_cores, "usable_cores", lambda: 4)
    monkeypatch.setattr(host_cores, "cpu_quota", lambda root: quota)
    assert cores_with_time() == expected
    assert resolve_config(EngineConfig(model="x"), "float32").threads == expected
    assert resolve_config(EngineConfig(model="x", threads=3), "float32").threads == 3
