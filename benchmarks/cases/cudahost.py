"""What a decode step on CUDA takes of the host, measured without a device: launches and microseconds per layer.

A stub in place of Triton's driver compiles the kernels and counts launches, but launches nothing; tensors are the
CPU's. Two models that differ in their number of layers give the time per layer. A real driver adds about 2 us per
launch. With `sdpa` the arithmetic of attention is the CPU's, so that its times are upper bounds.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.lib.forwards import BLOCK_SIZE, batch_of
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate, medians, spread
from specserve.attention.sdpa import SdpaFactory
from specserve.kv.cache import KVCache
from specserve.models.loader import load_model
from specserve.models.runner import Runner, StepParts
from specserve.protocols import AttentionSpec
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve.batch.batch import Batch
    from specserve.protocols import AttentionFactory
    from specserve_workbench.testing.stub_triton import StubDriver

LAYERS = (2, 34)
COUNTS = (1, 8, 32)
CONTEXT = 100
STEPS = 20
MOST_LAUNCHES, MOST_US = 10, 60
NO_LAUNCH = ["view", "_unsafe_view", "slice", "select", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze"]
NO_LAUNCH += ["as_strided", "alias", "split_with_sizes", "unbind", "detach", "empty", "new_empty", "empty_like"]


class CountCalls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls of torch that launch a kernel on a device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name, out = func.overloadpacket.__name__, func(*args, **(kwargs or {}))
        same = name == "to" and out.data_ptr() == args[0].data_ptr()  # in the type that it had
        if name not in NO_LAUNCH and not same:
            self.calls[name] += 1
        return out


@dataclass
class Variant:
    """A backend of attention and a number of requests."""

    backend: AttentionFactory
    count: int

    @property
    def name(self) -> str:
        return f"{self.backend.name}, {self.count}"


def run(options: Options) -> Result:
    from specserve_workbench.testing.stub_triton import stub_triton

    torch.set_num_threads(1)
    with TemporaryDirectory() as folder, stub_triton() as stub, torch.inference_mode():
        runners = {(b.name, n): runner_of(Path(folder) / str(n), n, b) for b in backends() for n in LAYERS}
        variants = [Variant(backend, count) for backend in backends() for count in COUNTS]
        batches = {count: batch_of(count, CONTEXT) for count in COUNTS}

        def per_layer(variant: Variant) -> float:
            few, many = (microseconds(runners[variant.backend.name, n], batches[variant.count]) for n in LAYERS)
            return (many - few) / (LAYERS[1] - LAYERS[0])

        measures = {v.name: partial(per_layer, v) for v in variants}
        samples = alternate(measures, options.rounds(7, 2))
        launches = {}
        for v in variants:
            few, many = (launches_of(stub, runners[v.backend.name, n], batches[v.count]) for n in LAYERS)
            launches[v.name] = (many - few) / (LAYERS[1] - LAYERS[0])
    median_us = medians(samples)
    first = variants[0].name
    return Result(
        title=f"a decode step of requests of {CONTEXT} tokens, tiny layers, no device",
        columns=("attention, requests", "launches per layer", "host us per layer", "min..max"),
        rows=[(v, f"{launches[v]:.1f}", f"{median_us[v]:.0f}", spread(samples[v])) for v in samples],
        checks=[
            Check(f"{first}: launches per layer", launches[first], MOST_LAUNCHES, True, ""),
            Check(f"{first}: host us per layer", median_us[first], MOST_US, True, " us"),
        ],
        notes=["No device and no driver took part."],
        raw=samples,
    )


def backends() -> Iterator[AttentionFactory]:
    from specserve_cuda.attention.paged import PagedFactory

    yield PagedFactory()
    yield SdpaFactory()


def runner_of(folder: Path, layers: int, backend: AttentionFactory) -> Runner:
    """Heads of 64 in groups of four, tiny otherwise."""
    from specserve_cuda.kernels.kernel_set import CudaKernels

    write_checkpoint(
        folder, dtype="bfloat16", num_hidden_layers=layers, hidden_size=64, intermediate_size=128,
        num_attention_heads=4, num_key_value_heads=1, head_dim=64,
    )  # fmt: skip
    kernels, device = CudaKernels(), torch.device("cpu")
    model = load_model(folder, kernels=kernels)
    for projection in model.projections.values():
        projection.finalize(kernels)
    spec = AttentionSpec(4, 1, 64, 0.125, BLOCK_SIZE, model.sliding_windows)
    cache = KVCache(
        num_layers=layers, num_blocks=1024, block_size=BLOCK_SIZE, num_kv_heads=1, head_dim=64, dtype=model.dtype,
        device=device,
    )  # fmt: skip
    return Runner(StepParts(model, kernels, backend.build(spec, cache, device, model.dtype)))


def microseconds(runner: Runner, batch: Batch) -> float:
    """The median forward pass; what it computes is not read."""
    took: list[float] = []
    for _ in range(STEPS):
        began = time.perf_counter()
        runner.forward(batch)
        took.append(time.perf_counter() - began)
    return median(took) * 1e6


def launches_of(stub: StubDriver, runner: Runner, batch: Batch) -> int:
    stub.launches.clear()
    with CountCalls() as torchs:
        runner.forward(batch)
    torch_calls: int = torchs.calls.total()
    return stub.launches.total() + torch_calls
