"""The recorder of CUDA devices: one `torch.cuda.CUDAGraph` per piece, all of them in one memory pool.

Pieces are captured on a stream of their own, after a run that is not captured: that compiles kernels and makes the
handles of libraries. Recordings share their pool, so only one of them may run at a time, and what a piece allocates is
overwritten by other recordings.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import torch

from specserve.api import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.cuda import _POOL_HANDLE

    from specserve.api import Cut

THREAD_LOCAL = "thread_local"
"""Other threads may allocate device memory while a piece is captured, as for a LoRA adapter that is loaded."""


class CudaRecording:
    """`specserve.api.Recording`: graphs, and the actions between them."""

    def __init__(self) -> None:
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.actions: list[Callable[[], None]] = []

    def replay(self) -> None:
        graphs = iter(self.graphs)
        next(graphs).replay()
        for action, graph in zip(self.actions, graphs, strict=True):
            action()
            graph.replay()


class CudaCapture:
    """While a function is captured."""

    def __init__(self, pool: _POOL_HANDLE) -> None:
        self.pool = pool
        self.recording = CudaRecording()

    def begin(self) -> None:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self.pool, capture_error_mode=THREAD_LOCAL)
        self.recording.graphs.append(graph)

    def end(self) -> None:
        self.recording.graphs[-1].capture_end()

    def cut(self, action: Callable[[], None]) -> None:
        self.end()
        self.recording.actions.append(action)
        self.begin()


class CudaRecorder:
    """`specserve.api.Recorder`."""

    name = "cuda"
    calls_again = False

    def __init__(self) -> None:
        self.stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        self.num_bytes = 0
        self.broken: list[CudaRecording] = []
        """Kept: the allocator may still point at their graphs."""

    def record(self, function: Callable[[Cut], None]) -> CudaRecording:
        before = free_bytes()
        self.stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self.stream):
                function(no_action)
                self.stream.synchronize()
                return self.capture(function)
        finally:
            torch.cuda.current_stream().wait_stream(self.stream)
            self.num_bytes += max(0, before - free_bytes())

    def capture(self, function: Callable[[Cut], None]) -> CudaRecording:
        capture = CudaCapture(self.pool)
        capture.begin()
        try:
            function(capture.cut)
        except FAULTS:
            self.give_up(capture)
            raise
        capture.end()
        return capture.recording

    def give_up(self, capture: CudaCapture) -> None:
        """End a capture whose function raised. Where that has made it invalid, its pool is of no more use."""
        try:
            capture.end()
        except FAULTS:  # the first error says more
            with suppress(*FAULTS):
                end_allocations(self.pool)
            self.broken.append(capture.recording)
            self.pool = torch.cuda.graph_pool_handle()


def end_allocations(pool: _POOL_HANDLE) -> None:
    """What `capture_end` of an invalid capture leaves undone: until then the allocator takes it to go on."""
    end = getattr(torch._C, "_cuda_endAllocateToPool", None)
    if end is not None:
        end(torch.cuda.current_device(), pool)


def no_action(action: Callable[[], None]) -> None:
    """What runs between pieces is not needed to compile the pieces."""


def free_bytes() -> int:
    return int(torch.cuda.mem_get_info()[0])
