"""CUDA graphs on the CPU: what runs while a graph is captured is written down, and a replay does that again.

As on a device, a replay runs no Python of the product: operations of torch get the tensors that they were captured
with, and launches of kernels the arguments, so that a number that was read on the host stays what it was. Inside a
capture the host may not wait, nor read, nor copy from its own memory.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MAKES_EMPTY = ("aten.empty", "aten.new_empty", "aten.empty_like", "aten.empty_strided")


def refuse(what):
    if Capturing.graph is not None:
        Capturing.graph.is_invalid = True
    raise RuntimeError(f"operation not permitted when stream is capturing: {what}")


class Capturing:
    """The graph that is being captured."""

    graph = None

    @classmethod
    def forbids(cls, what):
        if cls.graph is not None:
            refuse(what)


class Stream:
    def wait_stream(self, other):
        pass

    def synchronize(self):
        Capturing.forbids("synchronize")


CURRENT = Stream()


@contextmanager
def stream(_):
    yield


def tensors_in(values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def memory_of(tensor):
    return tensor.untyped_storage().data_ptr()


class Tape(TorchDispatchMode):
    """Operations of torch, as closures that do them again."""

    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, str(function)
        given = tensors_in((args, kwargs))
        if name.startswith("aten._local_scalar_dense"):
            refuse("a value for the host")
        if any(memory_of(tensor) in self.graph.host for tensor in given):
            refuse(f"{name} of the host's memory")
        out = function(*args, **kwargs)
        made = tensors_in(out)
        mine = {memory_of(tensor) for tensor in given}
        fresh = [tensor for tensor in made if memory_of(tensor) not in mine]
        self.graph.allocations += [name] * bool(fresh)
        if fresh and not name.startswith(MAKES_EMPTY):
            self.graph.operations.append((name, lambda: copy_all(tensors_in(function(*args, **kwargs)), made)))
        elif function._schema.is_mutable:
            self.graph.operations.append((name, lambda: function(*args, **kwargs)))
        return out


def copy_all(sources, targets):
    for source, target in zip(sources, targets, strict=True):
        if source.data_ptr() != target.data_ptr():
            target.copy_(source)


class Graph:
    """In place of torch.cuda.CUDAGraph."""

    def __init__(self):
        self.operations = []
        self.allocations = []
        self.host = set()
        self.is_invalid = False
        self.replays = 0
        GRAPHS.append(self)

    def capture_begin(self, pool=None, capture_error_mode="global"):
        assert capture_error_mode == "thread_local", "other threads may use the device meanwhile"
        assert pool == POOLS[-1], "all graphs share their memory"
        assert pool not in UNDERWAY, "already recording to mempool_id"
        Capturing.forbids("another capture")
        Capturing.graph = self
        self.tape = Tape(self)
        self.tape.__enter__()

    def capture_end(self):
        self.tape.__exit__(None, None, None)
        Capturing.graph = None
        if self.is_invalid:  # as torch leaves it: the allocator takes the capture to go on
            UNDERWAY.add(POOLS[-1])
            raise RuntimeError("operation failed due to a previous error during capture")

    def replay(self):
        Capturing.forbids("a replay")
        self.replays += 1
        for _, operation in self.operations:
            operation()


GRAPHS = []
"""All that were made."""
POOLS = []
UNDERWAY = set()


def pool_handle():
    POOLS.append((7, len(POOLS)))
    return POOLS[-1]


def launched(name, run, arguments):
    """A launch of a kernel, captured where a graph is."""
    graph = Capturing.graph
    if graph is None:
        run(arguments)
        return
    graph.operations.append((name, lambda: run(arguments)))
    graph.tape.__exit__(None, None, None)  # its twin is no operation of torch
    try:
        run(arguments)
    finally:
        graph.tape.__enter__()


def install(cuda):
    cuda.CUDAGraph = Graph
    cuda.Stream = Stream
    cuda.stream = stream
    cuda.current_stream = lambda device=None: CURRENT
    cuda.graph_pool_handle = pool_handle
    torch._C._cuda_endAllocateToPool = lambda device, pool: UNDERWAY.discard(pool)
