"""The processor: its name, its vector instructions, and the kernels that serve on it."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from specserve.plugins.loaded_plugin import BUILTIN
from specserve.processor import processor_name
from specserve.sysctl import sysctl_number
from specserve_workbench.doctor.needed import needed
from specserve_workbench.doctor.rows import Row, rows_of
from specserve_workbench.doctor.torch_build import SPIN_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_workbench.doctor.case import Case

VECTORS = {
    "avx2": "AVX2",
    "fma": "FMA",
    "avx512f": "AVX-512",
    "avx512_vnni": "VNNI",
    "avx_vnni": "AVX-VNNI",
    "avx512_bf16": "AVX512_BF16",
    "amx_bf16": "AMX",
    "asimd": "NEON",
    "asimddp": "DOTPROD",
    "i8mm": "I8MM",
    "bf16": "BF16",
    "sve": "SVE",
}
"""Flags of /proc/cpuinfo that matter to kernels, x86's and ARM's."""
MACOS_FLAGS = {
    "asimd": "hw.optional.neon",
    "asimddp": "hw.optional.arm.FEAT_DotProd",
    "bf16": "hw.optional.arm.FEAT_BF16",
    "i8mm": "hw.optional.arm.FEAT_I8MM",
}
"""What macOS calls them."""


def processor_rows(case: Case) -> list[Row]:
    return rows_of(case, name, instructions, kernels)


def cpuinfo(case: Case) -> dict[str, str]:
    """The first processor's lines; empty where the system has no such file."""
    first = case.read("proc/cpuinfo").partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def name(case: Case) -> Iterator[Row]:
    yield Row("name", "ok", f"{processor_name(case.root)} ({platform.machine()})")


def instructions(case: Case) -> Iterator[Row]:
    info = cpuinfo(case)
    flags = (info.get("flags") or info.get("Features") or "").split() or macos_flags()
    known = [text for flag, text in VECTORS.items() if flag in flags]
    with needed("torch cannot be imported"):
        import torch
    found = f"{', '.join(known) or 'not told by the system'}; torch uses {torch.backends.cpu.get_cpu_capability()}"
    if "flags" in info and "avx2" not in flags:
        yield Row("instructions", "warning", found, "without AVX2 all kernels are slow: use another machine")
    else:
        yield Row("instructions", "ok", found)


def macos_flags() -> list[str]:
    """By the names that Linux gives them; empty on other systems, which have a file."""
    return [flag for flag, name in MACOS_FLAGS.items() if sysctl_number(name) == 1]


def kernels(case: Case) -> Iterator[Row]:
    """What the enabled plugins chose for this processor, by the name that the kernels give themselves."""
    with needed("the plugins do not start"):
        case.host()
    owned, config = case.kernels(), case.resolved()
    found = f"{owned.kernels.name} ({owned.owner}) for {config.dtype} on {config.device}"
    if config.device == "cpu" and owned.owner == BUILTIN:
        advice = "torch's kernels are slow at few requests: install specserve-plugin-cpu, and leave it on"
        yield Row("kernels", "warning", found, advice)
        yield from waiting_threads(config.threads or 1)
    elif "portable" in owned.kernels.name.split("-"):
        yield Row("kernels", "warning", found, "there are no kernels for this processor's vector instructions: slow")
    else:
        yield Row("kernels", "ok", found)


def waiting_threads(threads: int) -> Iterator[Row]:
    """Threads of torch that spin while they wait take the cores from whatever else runs."""
    if threads > 1 and not any(name in os.environ for name in SPIN_SETTINGS):
        advice = "where other programs use the cores, set GOMP_SPINCOUNT=20000 before the start"
        yield Row("waiting threads", "note", "torch's threads spin while they wait for each other", advice)
