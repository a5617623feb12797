"""The most multiply-accumulates per second that this machine's cores do with an instruction set's own instruction."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.lib.shapes import BUILD

SOURCE = Path(__file__).with_suffix(".cpp")
INSTRUCTIONS = {
    "avx2": "fma256",
    "avx2_vnni": "fma256",
    "avx512": "fma512",
    "avx512_vnni": "fma512",
    "avx512_bf16": "bf16_512",
    "neon": "fma128",
    "neon_dot": "fma128",
    "neon_i8mm": "fma128",
}
"""What multiplies weights of 16 bits, by instruction set. Of those that are missing no peak is measured."""


def multiply_peak(instruction_set: str, threads: int) -> float:
    """Per second, of so many threads at once. Raises KeyError for a set whose peak is not measured, RuntimeError where
    no C++ compiler is found."""
    instruction, program = INSTRUCTIONS[instruction_set], BUILD / "multiply_peak"
    if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
        if compiler is None:
            raise RuntimeError("the bench compiles a program: install a C++ compiler, or name one by CXX.")
        BUILD.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-O2", "-std=c++17", SOURCE, "-o", program], check=True)
    running = [
        subprocess.Popen(
            [program, instruction], stdout=subprocess.PIPE, text=True
        )  # at once: they share clock and power
        for _ in range(threads)
    ]
    return sum(float(each.communicate()[0]) for each in running)
