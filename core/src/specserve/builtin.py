"""The core's own hook implementations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.attention.sdpa import SdpaFactory
from specserve.hookspecs import hookimpl
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models import families, open_weights
from specserve.sampling.processors import BadWordsProcessor, BiasProcessor, PenaltiesProcessor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve.models.family import ModelFamily
    from specserve.models.weight_format import WeightFormat
    from specserve.protocols import AttentionFactory, KernelSet, LogitsProcessor


@hookimpl
def model_families() -> Iterable[ModelFamily]:
    return families.BUILT_IN


@hookimpl
def weight_formats() -> Iterable[WeightFormat]:
    return open_weights.BUILT_IN


@hookimpl
def make_kernels(device: str, dtype: str) -> KernelSet | None:
    return TorchKernels() if device == "cpu" else None


@hookimpl
def attention_backends() -> Iterable[AttentionFactory]:
    return [SdpaFactory()]


@hookimpl
def logits_processors() -> Iterable[LogitsProcessor]:
    return [PenaltiesProcessor(), BiasProcessor(), BadWordsProcessor()]
