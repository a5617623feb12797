"""A Triton driver without a device: kernels are compiled for a GPU, counted, and not launched.

Triton's own dispatcher runs above it, so what is specialised, compiled and passed is what a device would get. In place
of a launch the kernel's *twin* is called where there is one: a function of the launch's arguments by name, over CPU
tensors. For tests and benchmarks of Triton kernels on machines without a GPU. Imports Triton.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from triton import knobs
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

    Twin = Callable[[dict[str, Tensor | float]], None]


class Jitted(Protocol):
    """The function of a kernel."""

    arg_names: list[str]


class Source(Protocol):
    """What a binary was compiled from."""

    fn: Jitted


class Metadata(Protocol):
    """Of a binary."""

    name: str


HOPPER = GPUTarget("cuda", 90, 32)
HOPPER_PROPERTIES = {"max_shared_mem": 232448, "multiprocessor_count": 132, "warpSize": 32, "max_num_regs": 65536}
MAX_THREADS = 1024


class Resources(NamedTuple):
    """What a thread of a binary needs: registers, and bytes of stack, where registers that do not fit are spilled."""

    registers: int
    stack: int


class Binary(NamedTuple):
    """A compiled kernel. `resources()` asks NVIDIA's cuobjdump, which Triton brings."""

    name: str
    cubin: Path

    @property
    def ptx(self) -> str:
        return self.cubin.with_suffix(".ptx").read_text()

    def resources(self) -> Resources:
        tool = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
        told = subprocess.check_output([tool, "--dump-resource-usage", self.cubin], text=True)
        found = re.search(r"REG:(\d+) STACK:(\d+)", told)
        assert found is not None, told
        return Resources(int(found[1]), int(found[2]))


class StubUtils:
    """What Triton asks a driver for when it loads a binary."""

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[int, str, int, int, int]:
        return 0, name, 0, 0, MAX_THREADS

    def get_device_properties(self, device: int) -> dict[str, int]:
        return HOPPER_PROPERTIES


class StubDriver:
    """`binaries` and `launches` grow; clear them at will. `twins`: by name of the kernel."""

    def __init__(self, twins: Mapping[str, Twin] | None = None) -> None:
        self.twins, self.utils = dict(twins or {}), StubUtils()
        self.launches: Counter[str] = Counter()
        self.binaries: list[Binary] = []

    def launcher_cls(self, source: Source, metadata: Metadata) -> Callable[..., None]:
        """Called once per binary; what it returns is called once per launch."""
        name, names = metadata.name, source.fn.arg_names
        twin, launches = self.twins.get(name), self.launches

        def launch(grid_x: int, grid_y: int, grid_z: int, stream: int, function: str, *rest: Tensor | float) -> None:
            launches[name] += 1
            if twin is not None and grid_x * grid_y * grid_z:
                twin(dict(zip(names, rest[-len(names) :], strict=True)))

        return launch

    def loaded(self, module: int, function: str, name: str, files: Mapping[str, str], _: str) -> None:
        self.binaries += [Binary(name, Path(path)) for file, path in files.items() if file.endswith(".cubin")]

    def get_current_target(self) -> GPUTarget:
        return HOPPER

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


@contextmanager
def stub_triton(twins: Mapping[str, Twin] | None = None) -> Iterator[StubDriver]:
    """Inside, Triton has no other driver. A kernel that was launched before keeps the driver that it had then."""
    stub, before = StubDriver(twins), driver._active
    driver.set_active(stub)
    knobs.runtime.kernel_load_end_hook.add(stub.loaded)
    try:
        yield stub
    finally:
        knobs.runtime.kernel_load_end_hook.remove(stub.loaded)
        driver._active = before
