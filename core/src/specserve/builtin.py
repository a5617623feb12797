"""The core's own hook implementations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.attention.sdpa import SdpaFactory
from specserve.errors import ConfigError
from specserve.hookspecs import hookimpl
from specserve.kernels.torch_kernels import TorchKernels
from specserve.sampling.processors import BadWordsProcessor, BiasProcessor, PenaltiesProcessor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve.protocols import AttentionFactory, KernelSet, LogitsProcessor


@hookimpl
def make_kernels(device: str, dtype: str) -> KernelSet | None:
    return cuda_kernels() if device == "cuda" else TorchKernels()


def cuda_kernels() -> KernelSet:
    """Imports here: only CUDA builds of torch install Triton."""
    try:
        from specserve.kernels.triton_kernels import CudaKernels
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "triton":
            raise
        raise ConfigError(
            "--device cuda: the core's CUDA kernels are written in Triton, and no module 'triton' is installed here. "
            "Install it (pip install triton; CUDA builds of torch bring it), or use --device cpu."
        ) from error
    return CudaKernels()


@hookimpl
def attention_backends() -> Iterable[AttentionFactory]:
    return [SdpaFactory()]


@hookimpl
def logits_processors() -> Iterable[LogitsProcessor]:
    return [PenaltiesProcessor(), BiasProcessor(), BadWordsProcessor()]
