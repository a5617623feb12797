"""The torch that is installed: its build, its threads, its OpenMP runtime, what it connects processes with."""

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
RANKS = "tensor_parallel"
"""The plugin that divides a model among processes."""
SPIN_SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")


def torch_rows(case: Case) -> list[Row]:
    return rows_of(case, build, threads, openmp, collectives)


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


def collectives(case: Case) -> Iterator[Row]:
    """Of torch.distributed: on CUDA devices the plugin imports gloo, too."""
    with needed("torch cannot be imported"):
        import torch.distributed
    has_gloo = torch.distributed.is_available() and torch.distributed.is_gloo_available()
    has_nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    found = " and ".join(name for name, is_there in (("gloo", has_gloo), ("NCCL", has_nccl)) if is_there) or "none"
    lacking = "gloo" if not has_gloo else "NCCL" if case.engine.device == "cuda" and not has_nccl else ""
    if not lacking:
        yield Row("collectives", "ok", found)
    elif RANKS in case.engine.plugins:
        advice = f"install a build of torch that has it, or remove --tensor-parallel and --plugin {RANKS}"
        yield Row("collectives", "failed", f"{found}; {RANKS} needs {lacking}", advice)
    else:
        yield Row("collectives", "note", f"{found}; needed only to divide a model among processes: {RANKS}")
