"""The CPU in place of a CUDA device: what asks torch for one gets tensors of the CPU.

Only what the engine and tests/gpu use is replaced. Reads by the host and copies from pageable memory are told to
`torch.cuda.set_sync_debug_mode`, as CUDA tells them. Everything stays replaced until the process ends.
"""

from __future__ import annotations

import functools
import time
import warnings
from contextlib import contextmanager

import cuda_graphs
import torch
import torch.nn.functional as F
from torch.nn.attention import varlen
from torch.utils._device import _device_constructors

from specserve_cuda.attention.varlen import varlen_attn_reference

FACTORIES = ["tensor", "as_tensor", "empty", "zeros", "ones", "full", "arange", "linspace", "empty_like", "zeros_like"]
FACTORIES += ["rand", "randn", "randint", "randperm"]
READS = ["tolist", "item", "__bool__", "__int__", "__float__", "__index__", "nonzero", "cpu", "numpy"]
MEMORY = 2**30
UNSEEN = "unseen"


class SyncMode:
    """What `set_sync_debug_mode` set."""

    value = "default"

    @classmethod
    def set(cls, value):
        cls.value = value

    @classmethod
    def waits(cls):
        if cls.value != UNSEEN:
            cuda_graphs.Capturing.forbids("the host waits")
        if cls.value == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        if cls.value == "warn":
            warnings.warn("called a synchronizing CUDA operation", stacklevel=3)


@contextmanager
def unseen():
    """Inside, nothing waits: what stands for the device's own work reads as it likes."""
    before, SyncMode.value = SyncMode.value, UNSEEN
    try:
        yield
    finally:
        SyncMode.value = before


class HostTensor(torch.Tensor):
    """A tensor over the host's own memory, and what is computed from it: the host reads it without waiting."""


class Event:
    def __init__(self, enable_timing=False):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


def is_cuda(x):
    return isinstance(x, (str, torch.device)) and torch.device(x).type == "cuda"


def made_on_the_cpu(function):
    @functools.wraps(function)
    def make(*args, **kwargs):
        kwargs.pop("pin_memory", None)
        if is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
            if function.__name__ == "tensor":
                SyncMode.waits()  # numbers of the host, in pageable memory
        return function(*args, **kwargs)

    return make


def moved_to_the_cpu(function):
    @functools.wraps(function)
    def move(self, *args, **kwargs):
        to_device = any(map(is_cuda, (*filter(is_device, args), *filter(is_device, kwargs.values()))))
        args = tuple("cpu" if is_device(arg) else arg for arg in args)
        if is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        moved = function(self, *args, **kwargs)
        return moved.as_subclass(torch.Tensor) if isinstance(self, HostTensor) and to_device else moved

    return move


def is_device(arg):
    return isinstance(arg, torch.device) or (isinstance(arg, str) and arg.startswith("cuda"))


def waiting(function):
    @functools.wraps(function)
    def read(*args, **kwargs):
        if not isinstance(args[0], HostTensor):
            SyncMode.waits()
        return function(*args, **kwargs)

    return read


def pin_memory(tensor):
    cuda_graphs.Capturing.forbids("pinned memory for a copy")
    return tensor


def over_host_memory(function):
    return lambda *args, **kwargs: function(*args, **kwargs).as_subclass(HostTensor)


def efficient_attention(query, key, value, bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    """In place of the operator that only CUDA has."""
    assert bias.shape == (*query.shape[:3], key.shape[2]), "the operator takes a bias of the scores' shape"
    assert bias.stride(2) % 8 == 0 or bias.stride(2) == 0, "rows of a bias begin at multiples of 16 bytes"
    assert not is_causal
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout_p, scale=scale)
    none = query.new_empty(0)
    return out, none, none.long(), none.long()


KEPT = []


def install():
    _device_constructors()  # remembers the originals: `with torch.device(...)` looks for them
    for name in FACTORIES:
        setattr(torch, name, made_on_the_cpu(getattr(torch, name)))
    torch.frombuffer = over_host_memory(torch.frombuffer)
    for name in READS:
        setattr(torch.Tensor, name, waiting(getattr(torch.Tensor, name)))
    torch.Tensor.pin_memory = pin_memory
    torch.Tensor.to = moved_to_the_cpu(torch.Tensor.to)
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.synchronize = lambda device=None: None
    cuda.empty_cache = lambda: None
    cuda.mem_get_info = lambda device=None: (MEMORY, MEMORY)
    cuda.get_device_name = lambda device=None: "the CPU in place of a device"
    cuda.get_device_capability = lambda device=None: (9, 0)
    cuda.set_sync_debug_mode = SyncMode.set
    cuda.Event = Event
    cuda_graphs.install(cuda)
    varlen.varlen_attn = varlen_attn_reference
    library = torch.library.Library("aten", "IMPL")
    library.impl("_scaled_dot_product_efficient_attention", efficient_attention, "CPU")
    KEPT.append(library)
