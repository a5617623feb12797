"""CUDA devices: the driver, what torch sees, and Triton, which the core's CUDA kernels are written in.

What is missing fails only with `--device cuda`.
"""

from __future__ import annotations

import warnings
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING

from specserve_workbench.doctor.needed import needed
from specserve_workbench.doctor.rows import Row, bytes_text, one_line, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_workbench.doctor.case import Case
    from specserve_workbench.doctor.rows import Status

DRIVER = "proc/driver/nvidia/version"


def gpu_rows(case: Case) -> list[Row]:
    return rows_of(case, driver, devices, triton)


def if_wanted(case: Case) -> Status:
    return "failed" if case.engine.device == "cuda" else "note"


def driver(case: Case) -> Iterator[Row]:
    line = one_line(case.read(DRIVER).partition("\n")[0].removeprefix("NVRM version:"))
    if line:
        yield Row("driver", "ok", line)
    else:
        advice = "install NVIDIA's driver, or use --device cpu" if case.engine.device == "cuda" else ""
        yield Row("driver", if_wanted(case), "no NVIDIA driver", advice)


def devices(case: Case) -> Iterator[Row]:
    with needed("torch cannot be imported"):
        import torch
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if not available:
        why = "".join(f": {one_line(str(warning.message))}" for warning in said[:1])
        if case.read(DRIVER):
            built = "a CUDA build of torch that fits the driver" if torch.version.cuda else "a CUDA build of torch"
            yield Row("devices", if_wanted(case), f"torch sees none, though there is a driver{why}", f"install {built}")
        elif case.engine.device == "cuda":
            yield Row("devices", "failed", f"torch sees none{why}", "use --device cpu")
        else:
            yield Row("devices", "note", f"torch sees none{why}; the model runs on the CPU")
        return
    for number in range(torch.cuda.device_count()):
        yield device(case, number)
    if case.engine.device != "cuda":
        yield Row("use", "note", "the model runs on the CPU", "pass --device cuda to use the GPU")


def device(case: Case, number: int) -> Row:
    import torch

    properties = torch.cuda.get_device_properties(number)
    free, total = torch.cuda.mem_get_info(number)
    architecture = f"sm_{properties.major}{properties.minor}"
    found = f"{properties.name}, {architecture}, {bytes_text(free)} free of {bytes_text(total)}"
    figures = {"free": free, "total": total}
    if not is_supported(properties.major, properties.minor, torch.cuda.get_arch_list()):
        known = ", ".join(torch.cuda.get_arch_list())
        advice = f"this torch is built for {known}: install another build"
        is_used = case.engine.device == "cuda" and number == torch.cuda.current_device()
        return Row(f"device {number}", "failed" if is_used else "warning", found, advice, figures)
    return Row(f"device {number}", "ok", found, figures=figures)


def is_supported(major: int, minor: int, architectures: list[str]) -> bool:
    """Code for a device of the same major version and a lower minor one runs; PTX (compute_*) is compiled for later
    ones."""
    for name in architectures:
        kind, _, digits = name.partition("_")
        version = (int(digits.rstrip("af")[:-1] or 0), int(digits.rstrip("af")[-1]))
        if kind == "compute" and version <= (major, minor):
            return True
        if kind == "sm" and version[0] == major and version[1] <= minor:
            return True
    return False


def triton(case: Case) -> Iterator[Row]:
    if find_spec("triton") is not None:
        try:
            version = metadata.version("triton")
        except metadata.PackageNotFoundError:
            version = "of unknown version"
        yield Row("triton", "ok", version)
    else:
        advice = "run pip install triton, or use --device cpu" if case.engine.device == "cuda" else ""
        yield Row("triton", if_wanted(case), "not installed; only --device cuda needs it", advice)
