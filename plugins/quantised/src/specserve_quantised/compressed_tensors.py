"""Weights of 4 and 8 bits as compressed-tensors stores them: integers, one in a byte or several in a word, and scales.

Owns the names and shapes of these tensors; knows nothing about kernels.
Format: https://github.com/vllm-project/compressed-tensors
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from specserve.api import ModelError
from specserve.api.models import QuantMethod, WeightSource, expect
from specserve_quantised.affine import Affine
from specserve_quantised.affine_source import USE_ANOTHER, AffineSource, StoredMap, expect_scales
from specserve_quantised.compressed_settings import ALLOWED, PLAIN, read_layout
from specserve_quantised.words import num_words, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor

    from specserve_quantised.compressed_settings import Layout, Scheme

SCALE = ".weight_scale"
NOT_OF_ONE_MODEL = "The weights and config.json are not of the same model."


class CompressedTensors(QuantMethod):
    name = "compressed-tensors"
    reads = ALLOWED

    def open(self, stored: WeightSource, settings: Mapping[str, Any], where: str) -> WeightSource:
        layout = read_layout(settings, where)
        return PlainSource(stored, layout) if layout.format == PLAIN else PackedSource(stored, layout)


class CompressedSource(AffineSource):
    """What both formats have in common: scales [out, groups]."""

    def __init__(self, stored: WeightSource, layout: Layout) -> None:
        self.schemes, self.activations = layout.schemes, layout.activations
        super().__init__(stored)

    def stems(self) -> Iterable[str]:
        return [name.removesuffix(SCALE) for name in self.stored.tensors if name.endswith(SCALE)]

    def scheme_of(self, stem: str, shape: tuple[int, int], schemes: Sequence[Scheme]) -> Scheme:
        """The first of these that gives as many scales as the file has."""
        (outs, ins), name = shape, f"{stem}{SCALE}"
        found = self.stored.find(name)
        by_columns = {-(-ins // (each.group_size or ins)): each for each in reversed(schemes)}
        if len(found.shape) != 2 or found.shape[1] not in by_columns:
            allowed = " or ".join(str(each.group_size or ins) for each in schemes)
            raise ModelError(
                f"{self.path}: tensor {name} has shape {list(found.shape)}; with {ins} inputs config.json allows "
                f"{' or '.join(map(str, sorted(by_columns)))} scales for each output, each for {allowed} inputs. "
                f"{NOT_OF_ONE_MODEL}"
            )
        expect_scales(self.stored, name, (outs, found.shape[1]), "its weight")
        return by_columns[found.shape[1]]

    def matrix(self, name: str, shape: Sequence[int]) -> tuple[int, int]:
        if len(shape) == 2 and min(shape) > 0:
            return shape[0], shape[1]
        raise ModelError(f"{self.path}: {name} says that a matrix has shape {list(shape)}. {NOT_OF_ONE_MODEL}")

    def refuse(self, stem: str, *parts: str) -> None:
        """ModelError where there are such parts."""
        if unread := [part for part in parts if f"{stem}.{part}" in self.stored.tensors]:
            raise ModelError(
                f"{self.path}: tensor {stem}.{unread[0]} changes what weights mean and is not read; what is read "
                f"is {ALLOWED}. {USE_ANOTHER}"
            )


class PlainSource(CompressedSource):
    """int-quantized: `weight` [out, in] of 8 bits."""

    def find_map(self, stem: str) -> StoredMap:
        self.refuse(stem, "weight_zero_point", "weight_g_idx")
        weight, scales = f"{stem}.weight", f"{stem}{SCALE}"
        found = self.stored.find(weight)
        shape = self.matrix(weight, found.shape)
        expect(found, weight, shape, ("I8",), weight)
        scheme = self.scheme_of(stem, shape, self.schemes)
        return StoredMap((weight, scales), shape, 8, scheme.group_size or shape[1], scales, None)

    def read_map(self, each: StoredMap, rows: slice) -> Affine:
        integers = self.part(each.parts[0], rows).contiguous().view(torch.uint8) ^ 128
        return Affine(integers, None, self.part(each.scales, rows), 8)


class PackedSource(CompressedSource):
    """pack-quantized: `weight_packed` [out, in * bits / 32], and zero points, which are packed along the outputs."""

    def find_map(self, stem: str) -> StoredMap:
        packed, sizes, scales = f"{stem}.weight_packed", f"{stem}.weight_shape", f"{stem}{SCALE}"
        zeros, group_of = f"{stem}.weight_zero_point", f"{stem}.weight_g_idx"
        expect(self.stored.find(sizes), sizes, (2,), ("I64", "I32"), "its format")
        shape = outs, ins = self.matrix(sizes, self.part(sizes).tolist())
        found = self.stored.find(packed)
        held = [each for each in self.schemes if found.shape == (outs, num_words(ins, each.bits))]
        scheme = self.scheme_of(stem, shape, held or self.schemes[:1])
        expect(found, packed, (outs, num_words(ins, scheme.bits)), ("I32",), sizes)
        each = StoredMap(
            (packed, sizes, scales), shape, scheme.bits, scheme.group_size or ins, scales,
            None if scheme.symmetric else zeros,
            group_of if scheme.ordered or group_of in self.stored.tensors else None,
        )  # fmt: skip
        if scheme.symmetric:
            self.refuse(stem, "weight_zero_point")
        else:
            expect(self.stored.find(zeros), zeros, (num_words(outs, each.bits), each.num_groups), ("I32",), sizes)
        if each.group_of is not None:
            expect(self.stored.find(group_of), group_of, (ins,), ("I32", "I64"), sizes)
        own = (part for part in (each.zeros, each.group_of) if part is not None)
        return each._replace(parts=(*each.parts, *own))

    def order_of(self, each: StoredMap) -> Tensor | None:
        """The tensor is there, filled with -1, where no order was ever found."""
        unset = each.group_of is not None and bool((self.part(each.group_of) == -1).any())
        return None if unset else super().order_of(each)

    def read_map(self, each: StoredMap, rows: slice) -> Affine:
        outs, ins = each.shape
        integers = unpacked(self.part(each.parts[0], rows), each.bits)[:, :ins].contiguous()
        zeros = None
        if each.zeros is not None:
            zeros = unpacked(self.part(each.zeros).t(), each.bits)[:, :outs].t()[rows]
        return Affine(integers, zeros, self.part(each.scales, rows), each.bits)
