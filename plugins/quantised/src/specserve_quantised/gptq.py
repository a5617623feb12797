"""GPTQ (Frantar et al., 2022), with the layout that AutoGPTQ and GPTQModel write: integers of 4 or 8 bits.

A map [out, in] is stored transposed, each word with the integers of neighbouring inputs: `qweight`
[in * bits / 32, out], `scales` [groups, out], `qzeros` [groups, out * bits / 32] and perhaps `g_idx` [in].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.api import ModelError
from specserve.api.models import QuantMethod, WeightSource, expect
from specserve_quantised.affine import Affine
from specserve_quantised.affine_source import USE_ANOTHER, AffineSource, StoredMap, expect_scales
from specserve_quantised.settings import given, read_group_size, require
from specserve_quantised.words import WORD, num_words, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WORDS = ".qweight"
ALLOWED: Mapping[str, tuple[object, ...]] = {
    "bits": (4, 8),
    "checkpoint_format": ("gptq", "gptq_v2"),
    "format": ("gptq", "gptq_v2"),
    "is_marlin_format": (False,),
    "desc_act": (False, True),
    "pack_dtype": ("int32",),
}
UNREAD = ("dynamic", "rotation", "adapter")
"""Settings that change what weights mean, where they are there."""


class Gptq(QuantMethod):
    name = "gptq"
    reads = "integers of 4 or 8 bits, of the formats gptq and gptq_v2"

    def open(self, stored: WeightSource, settings: Mapping[str, Any], where: str) -> WeightSource:
        require(settings, ALLOWED, where)
        if unread := [key for key in UNREAD if settings.get(key)]:
            raise ModelError(
                f"{where}: quantization_config: {unread[0]} changes what weights mean and is not read; got "
                f"{settings[unread[0]]!r}. {USE_ANOTHER}"
            )
        return GptqSource(stored, settings, read_group_size(settings, ("group_size",), where))


class GptqSource(AffineSource):
    def __init__(self, stored: WeightSource, settings: Mapping[str, Any], group_size: int | None) -> None:
        """settings: `quantization_config`, checked."""
        self.bits, self.group_size = given(settings, ("bits",), 4), group_size
        self.is_ordered = given(settings, ("desc_act",), False)
        """Whether the order of inputs must be there."""
        self.missing = 0 if given(settings, ("checkpoint_format", "format"), "gptq") == "gptq_v2" else 1
        """What must be added to the zero points: the first version stores one less, and 0 as the largest integer."""
        super().__init__(stored)

    def stems(self) -> Iterable[str]:
        return [name.removesuffix(WORDS) for name in self.stored.tensors if name.endswith(WORDS)]

    def find_map(self, stem: str) -> StoredMap:
        words, scales, zeros, group_of = (f"{stem}.{part}" for part in ("qweight", "scales", "qzeros", "g_idx"))
        found = self.stored.find(words)
        if len(found.shape) != 2 or min(found.shape) < 1 or found.dtype != "I32":
            raise ModelError(
                f"{found.file}: tensor {words} must be I32 [in / {WORD // self.bits}, out]; got {found.dtype} "
                f"{list(found.shape)}. {USE_ANOTHER}"
            )
        ins, outs = found.shape[0] * WORD // self.bits, found.shape[1]
        ordered = group_of if self.is_ordered or group_of in self.stored.tensors else None
        each = StoredMap(
            tuple(name for name in (words, scales, zeros, ordered) if name is not None),
            (outs, ins), self.bits, self.group_size or ins, scales, zeros, ordered,
        )  # fmt: skip
        expect_scales(self.stored, scales, (each.num_groups, outs), words)
        expect(self.stored.find(zeros), zeros, (each.num_groups, num_words(outs, self.bits)), ("I32",), words)
        if ordered is not None:
            expect(self.stored.find(ordered), ordered, (ins,), ("I32", "I64"), words)
        return each

    def read_map(self, each: StoredMap, rows: slice) -> Affine:
        words, scales, zeros, *_ = each.parts
        outs = each.shape[0]
        columns = unpacked(self.part(words)[:, rows].t(), each.bits)
        shifted = unpacked(self.part(zeros), each.bits)[:, :outs][:, rows].t()
        largest = (1 << each.bits) - 1
        own = (shifted + self.missing) & largest  # uint8 wraps by itself, 4 bits do not
        return Affine(columns, own, self.part(scales)[:, rows].t(), each.bits)
