"""cpu's hooks. One instance serves one engine: its kernels and attention share an instruction set and a thread pool."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Final

import torch

from specserve.api import ConfigError, hookimpl
from specserve_cpu._native import Machine, instruction_sets
from specserve_cpu.attention import PagedFactory
from specserve_cpu.compat import DTYPES
from specserve_cpu.kernels import CpuKernels
from specserve_cpu.options import AUTO, CpuOptions

if TYPE_CHECKING:
    from specserve.api import EngineConfig
    from specserve_cpu.options import KeysValues


ARCHITECTURES: Final = {
    ("amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2_vnni", "avx2"): ("x86_64", "AMD64"),
    ("neon_bf16", "neon_i8mm", "neon_dot", "neon"): ("aarch64", "arm64"),
}
"""Machines by the instruction sets that are for them alone, as `platform.machine` names them."""


class CpuPlugin:
    def __init__(self) -> None:
        self.machine: Machine | None = None
        """Set by `make_kernels`, which is called before the other hooks; None where the kernels do not serve."""
        self.kv: KeysValues = AUTO

    @hookimpl
    def plugin_options(self) -> type[CpuOptions]:
        return CpuOptions

    @hookimpl
    def make_kernels(self, config: EngineConfig, options: CpuOptions, device: str, dtype: str) -> CpuKernels | None:
        self.kv = options.kv
        if device != "cpu" or dtype not in DTYPES:
            return None
        self.machine = Machine(resolve_instruction_set(options.instruction_set), config.threads or 1)
        torch.set_num_threads(1)  # two thread pools that spin on the same cores stall each other
        return CpuKernels(self.machine, dtype, options.weights, options.activations)

    @hookimpl
    def attention_backends(self) -> list[PagedFactory]:
        return [PagedFactory(self.machine, self.kv)]


def resolve_instruction_set(name: str) -> str:
    supported = instruction_sets()
    if name == AUTO:
        return supported[0]
    if name not in supported:
        raise ConfigError(
            f"cpu.instruction_set: {name} {why_not_here(name)}; got {name!r}, "
            f"allowed are auto, {', '.join(supported)}. Leave it at auto."
        )
    return name


def why_not_here(name: str) -> str:
    machine = platform.machine()
    for sets, machines in ARCHITECTURES.items():
        if name in sets and machine not in machines:
            return f"is for processors of {' or '.join(machines)}, and this one is {machine}"
    return "does not run on this processor, or not in this build"
