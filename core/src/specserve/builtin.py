"""The core's own parts, brought through the same hooks as a guest's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.attention.sdpa import SdpaFactory
from specserve.hookspecs import hookimpl
from specserve.kernels import TorchKernels
from specserve.sampling.processors import BadWordsProcessor, BiasProcessor, PenaltiesProcessor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve.protocols import AttentionFactory, KernelSet, LogitsProcessor


@hookimpl
def make_kernels(device: str, dtype: str) -> KernelSet | None:
    return TorchKernels()


@hookimpl
def attention_backends() -> Iterable[AttentionFactory]:
    return [SdpaFactory()]


@hookimpl
def logits_processors() -> Iterable[LogitsProcessor]:
    return [PenaltiesProcessor(), BiasProcessor(), BadWordsProcessor()]
