"""Launches of a compiled Triton kernel without Triton's dispatcher, which takes five times as long as a launch.

The dispatcher specialises on types, on integers that are 1 or a multiple of 16, and on addresses that are a multiple of
16 bytes. Whoever holds a `Launch` promises that all of this is the same for every call; row counts are never
specialised on. Imports Triton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from triton.runtime import driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

ALIGNMENT = 16
"""Bytes: what Triton specialises pointers on."""


class Compiled(Protocol):
    """What Triton's dispatcher returns: a binary and how to launch it."""

    function: int
    packed_metadata: object
    run: Callable[..., None]


class Jitted(Protocol):
    """A function under `triton.jit`."""

    __name__: str
    arg_names: list[str]

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Compiled | None]: ...


class Launch:
    """A kernel with its constants and options. The first call goes through the dispatcher, which compiles."""

    __slots__ = ("arguments", "compiled", "constants", "device", "function", "kernel", "metadata", "run", "stream_of")

    def __init__(self, kernel: Jitted, constants: dict[str, int | bool], **options: int) -> None:
        self.kernel, self.arguments = kernel, constants | options
        # a launch takes the constants behind the other arguments, where the kernels declare them
        names = kernel.arg_names[len(kernel.arg_names) - len(constants) :]
        assert set(names) == set(constants), f"constants of {kernel.__name__}: {names}, given: {list(constants)}"
        self.constants = tuple(constants[name] for name in names)
        self.compiled: Compiled | None = None

    def __call__(self, grid_x: int, grid_y: int, *arguments: Tensor | float) -> None:
        if self.compiled is None:
            self.first(grid_x, grid_y, arguments)
            return
        self.run(
            grid_x, grid_y, 1, self.stream_of(self.device), self.function, self.metadata, None, None, None,
            *arguments, *self.constants,
        )  # fmt: skip

    def first(self, grid_x: int, grid_y: int, arguments: tuple[Tensor | float, ...]) -> None:
        compiled = self.kernel[grid_x, grid_y](*arguments, **self.arguments)
        if compiled is None:  # Triton's interpreter compiles nothing
            return
        self.run, self.function, self.metadata = compiled.run, compiled.function, compiled.packed_metadata
        self.stream_of, self.device = driver.active.get_current_stream, driver.active.get_current_device()
        self.compiled = compiled  # last: another thread may look


def dense(x: Tensor) -> Tensor:
    """x, or a contiguous and aligned copy. What the passes give is nearly always both already."""
    x = x.contiguous()
    return x if x.data_ptr() % ALIGNMENT == 0 else x.clone()


def blocks(count: int, size: int) -> int:
    """How many blocks of `size` hold `count`."""
    return -(-count // size)


def power_of_2(least: int) -> int:
    """The smallest power of 2 that is not below."""
    return 1 << (least - 1).bit_length()
