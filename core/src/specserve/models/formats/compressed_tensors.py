"""Weights of 8 bits as compressed-tensors stores them: integers, one in a byte or four in a word, and their scales.

Owns the names and shapes of these tensors; knows nothing about kernels.
Format: https://github.com/vllm-project/compressed-tensors
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from specserve.errors import ModelError
from specserve.models.formats.compressed_settings import ALLOWED, OTHERWISE, Layout, read_layout
from specserve.models.weight_format import (
    ALL_ROWS,
    NOT_OF_ONE_MODEL,
    QuantMethod,
    StoredTensor,
    WeightSource,
    expect,
)
from specserve.protocols.quantised import QuantisedWeight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

SCALE = ".weight_scale"
UNREAD = ("weight_zero_point", "weight_g_idx")
PER_WORD = 4
"""Integers in one int32 of the packed format."""


class CompressedTensors(QuantMethod):
    name = "compressed-tensors"
    reads = ALLOWED

    def open(self, stored: WeightSource, settings: Mapping[str, Any], where: str) -> WeightSource:
        return CompressedSource(stored, read_layout(settings, where))


class CompressedSource(WeightSource):
    """One weight for the parts that `stored` has of it; every other tensor as it is there."""

    def __init__(self, stored: WeightSource, layout: Layout) -> None:
        self.path, self.stored, self.layout = stored.path, stored, layout
        self._group_sizes: dict[str, int] = {}
        """By the names of linear maps, of those that are quantised."""
        tensors = dict(stored.tensors)
        for stem in [name.removesuffix(SCALE) for name in stored.tensors if name.endswith(SCALE)]:
            parts, shape = self._integers(stem)
            self._group_sizes[stem] = self._group_size(stem, shape)
            num_bytes = sum(tensors.pop(part).num_bytes for part in [*parts, f"{stem}{SCALE}"])
            file = stored.find(parts[0]).file
            tensors[f"{stem}.weight"] = StoredTensor(shape, "I8", num_bytes, file, quantised=True)
        self.tensors = tensors

    def read(self, name: str, rows: slice = ALL_ROWS) -> Tensor | QuantisedWeight:
        stem = name.removesuffix(".weight")
        if stem not in self._group_sizes:
            return self.stored.read(name, rows)
        scales = self._plain(f"{stem}{SCALE}", rows).float()
        if self.layout.format == "int-quantized":
            integers = self._plain(name, rows)
        else:
            words = self._plain(f"{stem}.weight_packed", rows).contiguous()
            packed = words.view(torch.uint8)[:, : self.tensors[name].shape[1]]
            integers = (packed ^ 0x80).view(torch.int8).contiguous()  # stored with 128 added
        return QuantisedWeight(integers, scales, self._group_sizes[stem], torch.float32, self.layout.activations)

    def _integers(self, stem: str) -> tuple[list[str], tuple[int, ...]]:
        """The tensors that hold the integers of the linear map `stem`, checked, and its weight's shape, [out, in]."""
        if unread := [name for name in UNREAD if f"{stem}.{name}" in self.stored.tensors]:
            raise ModelError(
                f"{self.path}: tensor {stem}.{unread[0]} changes what weights mean and is not read; what is read "
                f"is {ALLOWED}. {OTHERWISE}"
            )
        if self.layout.format == "int-quantized":
            weight = f"{stem}.weight"
            found = self.stored.find(weight)
            expect(found, weight, self._matrix(weight, found.shape), ("I8",), weight)
            return [weight], found.shape
        packed, sizes = f"{stem}.weight_packed", f"{stem}.weight_shape"
        if f"{stem}.weight" in self.stored.tensors:
            raise ModelError(f"{self.path}: tensor {stem}.weight is there twice, packed and not. {OTHERWISE}")
        expect(self.stored.find(sizes), sizes, (2,), ("I64", "I32"), "its format")
        shape = self._matrix(sizes, tuple(self._plain(sizes).tolist()))
        expect(self.stored.find(packed), packed, (shape[0], -(-shape[1] // PER_WORD)), ("I32",), sizes)
        return [packed, sizes], shape

    def _matrix(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) == 2 and min(shape) > 0:
            return shape
        raise ModelError(f"{self.path}: {name} says that a matrix has shape {list(shape)}. {NOT_OF_ONE_MODEL}")

    def _group_size(self, stem: str, shape: tuple[int, ...]) -> int:
        """How many inputs share a scale: the one of the settings that gives as many scales as the file has."""
        outs, ins = shape
        name = f"{stem}{SCALE}"
        found = self.stored.find(name)
        sizes = {-(-ins // (size or ins)): size or ins for size in reversed(self.layout.group_sizes)}
        if len(found.shape) != 2 or found.shape[1] not in sizes:
            raise ModelError(
                f"{self.path}: tensor {name} has shape {list(found.shape)}; with {ins} inputs config.json allows "
                f"{' or '.join(map(str, sorted(sizes)))} scales for each output. {NOT_OF_ONE_MODEL}"
            )
        expect(found, name, (outs, found.shape[1]), ("F32", "BF16", "F16"), "its weight")
        return sizes[found.shape[1]]

    def _plain(self, name: str, rows: slice = ALL_ROWS) -> Tensor:
        read = self.stored.read(name, rows)
        if isinstance(read, QuantisedWeight):
            raise ModelError(f"{self.path}: tensor {name}, which is a part of a quantised weight, is quantised itself.")
        return read
