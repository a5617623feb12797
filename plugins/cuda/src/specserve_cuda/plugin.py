"""The hooks of cuda. Triton is imported when kernels are made: a start on another device needs none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ConfigError, hookimpl

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve.api import AttentionFactory, EngineConfig, KernelSet, Recorder


@hookimpl
def make_kernels(device: str) -> KernelSet | None:
    if device != "cuda":
        return None
    try:
        from specserve_cuda.kernels.kernel_set import CudaKernels
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "triton":
            raise
        raise ConfigError(
            "--device cuda: the kernels of the plugin cuda are written in Triton, and no module 'triton' is installed "
            "here. Install it (pip install triton; CUDA builds of torch bring it), or use --device cpu."
        ) from error
    return CudaKernels()


@hookimpl
def attention_backends(config: EngineConfig) -> Iterable[AttentionFactory]:
    if config.device != "cuda":
        return []
    from specserve_cuda.attention.backends import cuda_backends

    return cuda_backends()


@hookimpl
def make_recorder(device: str) -> Recorder | None:
    if device != "cuda":
        return None
    from specserve_cuda.recorder import CudaRecorder  # asks the driver for a pool and a stream

    return CudaRecorder()
