"""Runs CUDA C on the host: the kernel's text is compiled as C++, and a loop stands in for the grid.

What a kernel computes is executed; what only a device has (memory spaces, races, alignment) is not seen.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess

import numpy
import torch

COMPILER = shutil.which("g++") or shutil.which("c++")

SHIM = """
#define __global__
struct Dim { long long x, y, z; };
static thread_local Dim blockIdx, threadIdx, blockDim, gridDim;
"""

RUNNER = """
extern "C" void run_NAME(long long gx, long long gy, long long threads, void** p, long long* n) {
    gridDim = {gx, gy, 1};
    blockDim = {threads, 1, 1};
    for (long long y = 0; y < gy; ++y)
        for (long long x = 0; x < gx; ++x)
            for (long long t = 0; t < threads; ++t) {
                blockIdx = {x, y, 0};
                threadIdx = {t, 0, 0};
                NAME(ARGUMENTS);
            }
}
"""


def runner(source, name):
    """The loop over the grid for one kernel: its parameters are pointers, then 64-bit integers."""
    text = re.search(rf"void {name}\((.*?)\)", source, re.DOTALL)[1]
    parameters = [parameter.strip() for parameter in text.split(",")]
    pointers = [parameter.rpartition("*")[0] + "*" for parameter in parameters if "*" in parameter]
    assert all("long long" in parameter for parameter in parameters[len(pointers) :])
    given = [f"({kind})p[{i}]" for i, kind in enumerate(pointers)]
    given += [f"n[{i}]" for i in range(len(parameters) - len(pointers))]
    return RUNNER.replace("NAME", name).replace("ARGUMENTS", ", ".join(given))


class HostCuda:
    """`kernel` has the signature of `cupy.RawKernel`; `folder` keeps what was compiled, `launched` names."""

    def __init__(self, folder):
        self.folder, self.launched = folder, []

    def kernel(self, source, name):
        def launch(grid, block, arguments):
            tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
            numbers = [each for each in arguments if not isinstance(each, torch.Tensor)]
            assert all(a is b for a, b in zip(arguments, [*tensors, *numbers], strict=True)), "pointers come first"
            assert all(tensor.is_contiguous() for tensor in tensors)
            assert all(isinstance(number, numpy.int64) for number in numbers)
            pointers = (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
            values = (ctypes.c_longlong * len(numbers))(*map(int, numbers))
            run = getattr(self.library(source), f"run_{name}")
            run(*map(ctypes.c_longlong, ((*grid, 1)[0], (*grid, 1)[1], *block)), pointers, values)
            self.launched.append(name)

        launch.compile = lambda: self.library(source)
        return launch

    def library(self, source):
        stem = self.folder / hashlib.sha1(source.encode()).hexdigest()
        if not stem.with_suffix(".so").exists():
            names = re.findall(r"__global__ void (\w+)\(", source)
            stem.with_suffix(".cpp").write_text(SHIM + source + "".join(runner(source, name) for name in names))
            command = [
                COMPILER,
                "-O1",
                "-Wall",
                "-Werror",
                "-fsanitize=undefined",
                "-fsanitize-undefined-trap-on-error",
            ]
            command += ["-fPIC", "-shared", str(stem.with_suffix(".cpp")), "-o", str(stem.with_suffix(".so"))]
            subprocess.run(command, check=True, capture_output=True, text=True)
        return ctypes.CDLL(str(stem.with_suffix(".so")))
