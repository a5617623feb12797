"""Processor, cores, memory, limits and tools of machines that are faked file by file."""

from __future__ import annotations

import builtins
import os
import resource
import socket
import sys
from importlib import metadata

import pytest
from found import by_check, statuses

from specserve import host_cores, host_memory
from specserve.host_memory import FreeMemory
from specserve_server.config import ServerConfig
from specserve_workbench.doctor import cores, interpreter, system_memory
from specserve_workbench.doctor.build_tools import build_tool_rows
from specserve_workbench.doctor.cores import core_rows
from specserve_workbench.doctor.interpreter import interpreter_rows
from specserve_workbench.doctor.port import port_rows
from specserve_workbench.doctor.processor import processor_rows
from specserve_workbench.doctor.system_memory import memory_rows
from specserve_workbench.doctor.torch_build import torch_rows

OLD = "processor\t: 0\nmodel name\t: Old CPU\nflags\t\t: fpu sse sse2\n\nprocessor\t: 1\nflags\t: avx2\n"
NEW = "model name\t: New CPU\nflags\t\t: avx2 fma avx512f avx512_bf16 amx_bf16\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp sve i8mm bf16\n"
TORCH_ONLY = {"default_plugins": False}


@pytest.fixture
def four_cores(monkeypatch):
    for module in (cores, host_cores):
        monkeypatch.setattr(module, "usable_cores", lambda: 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)


@pytest.mark.parametrize(
    ("cpuinfo", "status", "said"),
    [
        (OLD, "warning", "not told by the system; torch"),
        (NEW, "ok", "AVX2, FMA, AVX-512, AVX512_BF16, AMX; torch"),
        (ARM, "ok", "NEON, DOTPROD, I8MM, BF16, SVE; torch"),
        (None, "ok", "not told by the system; torch"),
    ],
)
def test_vector_instructions_are_read_from_the_first_processor(make_case, cpuinfo, status, said):
    rows = by_check(processor_rows(make_case({"proc/cpuinfo": cpuinfo} if cpuinfo else {}, **TORCH_ONLY)))
    assert rows["name"].status == "ok"
    assert rows["instructions"].status == status
    assert rows["instructions"].found.startswith(said)


def test_the_kernels_are_those_that_the_plugins_choose(make_case):
    native = by_check(processor_rows(make_case()))["kernels"]
    assert (native.status, native.found.split(" (")[0].split("-")[0]) == ("ok", "cpu")
    plain = by_check(processor_rows(make_case(**TORCH_ONLY)))["kernels"]
    assert (plain.status, "(builtin)" in plain.found) == ("warning", True)
    slow = make_case(plugin_options={"cpu": {"instruction_set": "portable"}})
    assert statuses(processor_rows(slow))["kernels"] == "warning"
    refused = make_case(plugin_options={"cpu": {"instruction_set": "mmx"}})
    assert "mmx" in by_check(processor_rows(refused))["kernels"].found
    assert statuses(processor_rows(refused))["kernels"] == "failed"


def test_threads_of_torch_that_spin_are_noted(make_case, monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    assert statuses(processor_rows(make_case(threads=2, **TORCH_ONLY)))["waiting threads"] == "note"
    assert "waiting threads" not in statuses(processor_rows(make_case(threads=1, **TORCH_ONLY)))
    assert "waiting threads" not in statuses(processor_rows(make_case(threads=2)))
    monkeypatch.setenv("GOMP_SPINCOUNT", "100")
    assert "waiting threads" not in statuses(processor_rows(make_case(threads=2, **TORCH_ONLY)))


QUOTAS = {
    "none": ({}, None),
    "version 2, its own": ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "250000 100000\n"}, 2.5),
    "version 2, of the group around it": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/cpu.max": "100000 100000\n",
        },
        1,
    ),
    "version 2, in a container": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
    "version 1": (
        {
            "proc/self/cgroup": "4:memory:/x\n2:cpu,cpuacct:/x\n",
            "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
        },
        2,
    ),
    "version 1, without a limit": (
        {
            "proc/self/cgroup": "1:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        None,
    ),
    "rubbish": ({"proc/self/cgroup": "what\n::\n0::/\n", "sys/fs/cgroup/cpu.max": "many 0"}, None),
}


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize("kind", QUOTAS)
def test_a_quota_of_any_control_group_is_found(make_case, kind):
    files, quota = QUOTAS[kind]
    row = by_check(core_rows(make_case(files)))["cores"]
    assert row.status == "ok"
    assert row.figures.get("quota") == quota
    assert row.found.startswith("4 of 8 usable")


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("threads", "quota", "status", "said"),
    [
        (None, None, "ok", "4 (one per core that there is time for)"),
        (None, "150000 100000", "ok", "1 (one per core that there is time for)"),
        (2, "150000 100000", "warning", "--threads 1"),
        (8, None, "warning", "--threads 4"),
        (2, None, "note", "--threads 4"),
        (2, "200000 100000", "ok", "2 (--threads)"),
    ],
)
def test_threads_are_held_against_the_cores(make_case, threads, quota, status, said):
    files = {"proc/self/cgroup": "0::/\n"} | ({"sys/fs/cgroup/cpu.max": quota} if quota else {})
    row = by_check(core_rows(make_case(files, threads=threads)))["threads"]
    assert row.status == status
    assert said in row.found + row.advice


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(("average", "status"), [(0.5, "ok"), (3.5, "note")])
def test_a_busy_machine_is_noted(make_case, monkeypatch, average, status):
    monkeypatch.setattr(os, "getloadavg", lambda: (average, 0.0, 0.0))
    assert statuses(core_rows(make_case()))["load"] == status


def test_memory_is_told_with_the_limit_of_the_control_group(make_case, monkeypatch):
    monkeypatch.setattr(system_memory, "free_host_memory", lambda: FreeMemory(3 * 2**30, ""))
    files = {
        "proc/meminfo": f"MemTotal:  {8 * 2**20} kB\nMemFree: 1 kB\n",
        "proc/self/cgroup": "3:memory:/a\n",
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": str(4 * 2**30),
        "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**63 - 4096),
    }
    row = by_check(memory_rows(make_case(files)))["memory"]
    assert (row.status, row.found) == ("ok", "3.0 GiB free of 8.0 GiB, 4.0 GiB for this control group")
    monkeypatch.setattr(system_memory, "free_host_memory", lambda: FreeMemory(2**20, ""))
    row = by_check(memory_rows(make_case({})))["memory"]
    assert row.status == "warning"


@pytest.mark.parametrize(
    ("setting", "status"), [("[always] madvise never", "ok"), ("always madvise [never]", "warning"), (None, "note")]
)
def test_huge_pages_are_asked_of_the_system(make_case, monkeypatch, tmp_path, setting, status):
    file = tmp_path / "enabled"
    if setting:
        file.write_text(setting)
    monkeypatch.setattr(host_memory, "HUGE_PAGE_SETTING", file)
    assert statuses(memory_rows(make_case()))["huge pages"] == status


@pytest.mark.parametrize(
    ("soft", "hard", "status", "said"),
    [
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, "ok", "no limit"),
        (65536, 65536, "ok", "at most 65536"),
        (1024, 4096, "note", "at most 4096 here"),
        (100, resource.RLIM_INFINITY, "warning", "unlimited here"),
    ],
)
def test_few_open_files_are_told(make_case, monkeypatch, soft, hard, status, said):
    monkeypatch.setattr(resource, "getrlimit", lambda what: (soft, hard))
    rows = by_check(memory_rows(make_case()))
    assert rows["open files"].status == status
    assert said in rows["open files"].found + rows["open files"].advice
    assert rows["locked memory"].status == "ok"


def test_without_a_compiler_and_git_there_are_notes(make_case, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    rows = by_check(build_tool_rows(make_case()))
    assert {check: row.status for check, row in rows.items()} == {
        "compiler": "note",
        "python headers": "note",
        "git": "note",
    }
    assert "(c++, g++, clang++)" in rows["compiler"].found


def test_a_compiler_is_asked_for_its_version(make_case, monkeypatch, tmp_path):
    for name, script in {"fine": "echo 'cc 12.3'; echo more", "broken": "echo no >&2; exit 1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("CXX", f"{tmp_path}/fine -m64")
    row = by_check(build_tool_rows(make_case()))["compiler"]
    assert (row.status, row.found) == ("ok", f"{tmp_path}/fine -m64: cc 12.3")
    monkeypatch.setenv("CXX", f"{tmp_path}/broken")
    assert statuses(build_tool_rows(make_case()))["compiler"] == "note"


@pytest.fixture
def busy_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_in_use_is_a_warning_and_a_wrong_host_a_failure(make_case, busy_port):
    (busy,) = port_rows(make_case(server=ServerConfig(port=busy_port)))
    assert (busy.status, busy.found) == ("warning", f"127.0.0.1:{busy_port} is in use")
    (free,) = port_rows(make_case(server=ServerConfig(port=0)))
    assert (free.status, free.found) == ("ok", "127.0.0.1, any free port")
    for host in ("192.0.2.1", "a" * 70 + ".b"):
        (wrong,) = port_rows(make_case(server=ServerConfig(host=host, port=0)))
        assert wrong.status == "failed", host


def test_missing_and_old_packages_fail(make_case, monkeypatch):
    needed = {"specserve-core": ["torch>=99.1", "x>=1; extra == 'y'"], "specserve": ["no-such-package>=1"]}
    monkeypatch.setattr(metadata, "requires", needed.__getitem__)
    rows = [row for row in interpreter_rows(make_case()) if row.check == "packages"]
    assert [row.status for row in rows] == ["failed", "failed"]
    assert rows[0].found.endswith("is older than 99.1")
    assert rows[1].found == "no-such-package: not installed"
    monkeypatch.undo()
    assert statuses(interpreter_rows(make_case())) == {
        "specserve": "ok",
        "python": "ok",
        "operating system": "ok",
        "packages": "ok",
    }


@pytest.mark.parametrize(("system", "libc"), [("Darwin", ("", "")), ("Linux", ("musl", "1.2"))])
def test_other_systems_are_noted(make_case, monkeypatch, system, libc):
    monkeypatch.setattr(interpreter.platform, "system", lambda: system)
    monkeypatch.setattr(interpreter.platform, "libc_ver", lambda: libc)
    assert statuses(interpreter_rows(make_case()))["operating system"] == "note"


def test_two_openmp_runtimes_are_a_warning(make_case):
    one = "7f 00 /venv/lib/torch/lib/libgomp-a34b.so.1\n7e 00 /venv/lib/torch/lib/libgomp-a34b.so.1\n"
    rows = by_check(torch_rows(make_case({"proc/self/maps": one})))
    assert rows["openmp"].status == "ok"
    assert rows["openmp"].found.startswith("OpenMP, libgomp-a34b.so.1")
    rows = by_check(torch_rows(make_case({"proc/self/maps": f"{one}7d 00 /usr/lib/libiomp5.so\n"})))
    assert rows["openmp"].status == "warning"


def test_a_torch_that_does_not_import_fails_once(make_case, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert statuses(torch_rows(make_case())) == {
        "build": "failed",
        "threads": "note",
        "openmp": "note",
        "collectives": "note",
    }


@pytest.mark.parametrize(
    ("there", "options", "status", "found"),
    [
        ("gloo", {}, "ok", "gloo"),
        ("gloo", {"plugins": ("tensor_parallel",)}, "ok", "gloo"),
        ("gloo nccl", {"plugins": ("tensor_parallel",), "device": "cuda"}, "ok", "gloo and NCCL"),
        ("gloo", {"plugins": ("tensor_parallel",), "device": "cuda"}, "failed", "gloo; tensor_parallel needs NCCL"),
        ("nccl", {"plugins": ("tensor_parallel",)}, "failed", "NCCL; tensor_parallel needs gloo"),
        ("", {"plugins": ("tensor_parallel",)}, "failed", "none; tensor_parallel needs gloo"),
        ("", {}, "note", "none; needed only to divide a model among processes: tensor_parallel"),
    ],
)
def test_a_divided_model_needs_collectives(make_case, monkeypatch, there, options, status, found):
    monkeypatch.setattr("torch.distributed.is_available", lambda: bool(there))
    for name in ("gloo", "nccl"):
        monkeypatch.setattr(f"torch.distributed.is_{name}_available", lambda name=name: name in there.split())
    row = by_check(torch_rows(make_case(**options)))["collectives"]
    assert (row.status, row.found) == (status, found)


def test_files_that_cannot_be_read_are_as_if_missing(make_case, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError("no")

    case = make_case({"proc/cpuinfo": NEW})
    monkeypatch.setattr("pathlib.Path.read_text", refuse)
    monkeypatch.setattr(builtins, "open", refuse)
    assert case.read("proc/cpuinfo") == ""
