"""The torch that is installed: its build, its threads, its OpenMP runtime."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from specserve_workbench.doctor.needed import needed
from specserve_workbench.doctor.rows import Row, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_workbench.doctor.case import Case

OPENMP_LIBRARY = re.compile(r"(\S*/lib(?:gomp|iomp5|omp)\b\S*)")
SPIN_SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")


def torch_rows(case: Case) -> list[Row]:
    return rows_of(case, build, threads, openmp)


def build(case: Case) -> Iterator[Row]:
    import torch

    kind = "CPU build"
    if torch.version.cuda is not None:
        kind = f"build for CUDA {torch.version.cuda}"
    elif torch.version.hip is not None:
        kind = f"build for ROCm {torch.version.hip}"
    yield Row("build", "ok", f"torch {torch.__version__}, {kind}")


def threads(case: Case) -> Iterator[Row]:
    with needed("torch cannot be imported"):
        import torch
    count = torch.get_num_threads()
    settings = [f"{name}={os.environ[name]}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ]
    found = f"{count} by default" + (f" ({', '.join(settings)})" if settings else "")
    yield Row("threads", "ok", f"{found}; specserve sets its own number", figures={"threads": count})


def openmp(case: Case) -> Iterator[Row]:
    with needed("torch cannot be imported"):
        import torch
    info = torch.__config__.parallel_info()
    backend = re.search(r"parallel backend: (.*)", info)
    found = backend[1].strip() if backend else "not said"
    libraries = sorted(set(OPENMP_LIBRARY.findall(case.read("proc/self/maps"))))
    if libraries:
        found += f", {', '.join(os.path.basename(library) for library in libraries)}"
    settings = [f"{name}={os.environ[name]}" for name in SPIN_SETTINGS if name in os.environ]
    found += "".join(f", {setting}" for setting in settings)
    if len(libraries) > 1:
        advice = "several OpenMP runtimes in a process stall each other: find which package brings the second"
        yield Row("openmp", "warning", found, advice)
    elif backend and not backend[1].startswith("OpenMP"):
        yield Row("openmp", "note", found, "torch's wheels use OpenMP; other backends are not tested")
    else:
        yield Row("openmp", "ok", found)
