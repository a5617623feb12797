"""AWQ (Lin et al., 2023), with the layout "gemm" of AutoAWQ: integers of 4 bits with zero points.

A map [out, in] is stored transposed, each word with the integers of eight outputs: `qweight` [in, out / 8], `qzeros`
[groups, out / 8], `scales` [groups, out].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from specserve.api import ModelError
from specserve.api.models import QuantMethod, WeightSource, expect
from specserve_quantised.affine import Affine
from specserve_quantised.affine_source import USE_ANOTHER, AffineSource, StoredMap, expect_scales
from specserve_quantised.settings import given, read_group_size, require, wrong
from specserve_quantised.words import WORD, in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

WORDS = ".qweight"
BITS = 4
PER_WORD = WORD // BITS
PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""In a word: the place of each of its eight outputs."""


class Awq(QuantMethod):
    name = "awq"
    reads = "integers of 4 bits, of version gemm"

    def open(self, stored: WeightSource, settings: Mapping[str, Any], where: str) -> WeightSource:
        bits, version = given(settings, ("bits", "w_bit"), BITS), given(settings, ("version",), "gemm")
        if bits != BITS:
            raise wrong(where, "bits", str(BITS), bits)
        if not isinstance(version, str) or version.lower() != "gemm":
            raise wrong(where, "version", "'gemm'", version)
        require(settings, {"zero_point": (True, False), "format": ("gemm",), "checkpoint_format": ("gemm",)}, where)
        size = read_group_size(settings, ("group_size", "q_group_size"), where)
        return AwqSource(stored, size, settings.get("zero_point", True))


class AwqSource(AffineSource):
    def __init__(self, stored: WeightSource, group_size: int | None, has_zeros: bool) -> None:
        self.group_size, self.has_zeros = group_size, has_zeros
        super().__init__(stored)

    def stems(self) -> Iterable[str]:
        return [name.removesuffix(WORDS) for name in self.stored.tensors if name.endswith(WORDS)]

    def find_map(self, stem: str) -> StoredMap:
        words, scales = f"{stem}{WORDS}", f"{stem}.scales"
        zeros = f"{stem}.qzeros" if self.has_zeros else None
        found = self.stored.find(words)
        if len(found.shape) != 2 or min(found.shape) < 1 or found.dtype != "I32":
            raise ModelError(
                f"{found.file}: tensor {words} must be I32 [in, out / {PER_WORD}]; got {found.dtype} "
                f"{list(found.shape)}. {USE_ANOTHER}"
            )
        ins, outs = found.shape[0], found.shape[1] * PER_WORD
        parts = (words, scales) if zeros is None else (words, scales, zeros)
        each = StoredMap(parts, (outs, ins), BITS, self.group_size or ins, scales, zeros)
        expect_scales(self.stored, scales, (each.num_groups, outs), words)
        if zeros is not None:
            expect(self.stored.find(zeros), zeros, (each.num_groups, outs // PER_WORD), ("I32",), words)
        return each

    def read_map(self, each: StoredMap, rows: slice) -> Affine:
        zeros = None if each.zeros is None else by_output(self.part(each.zeros), rows)
        return Affine(by_output(self.part(each.parts[0]), rows), zeros, self.part(each.scales)[:, rows].t(), BITS)


def by_output(words: Tensor, rows: slice) -> Tensor:
    """words: [n, out / 8] int32 -> these of the outputs, [rows, n] uint8."""
    n, outs = words.shape[0], words.shape[1] * PER_WORD
    in_bytes = in_order(words.t()).view(torch.uint8).view(-1, n, WORD // 8)
    found = torch.empty(outs // PER_WORD, PER_WORD, n, dtype=torch.uint8)
    for output, place in enumerate(PLACES):
        byte = in_bytes[..., place // 2]
        found[:, output] = byte >> 4 if place % 2 else byte & 15
    return found.flatten(0, 1)[rows].contiguous()
