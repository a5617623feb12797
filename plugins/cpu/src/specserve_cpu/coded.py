"""Linear maps whose weights have few bits: integers as codes of 4, 5, 6 or 8 bits, and the numbers of groups."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F

from specserve.api.models import Factors, QuantisedWeight, StackedWeight, numbers_of
from specserve_cpu import _native
from specserve_cpu.attention import native_module
from specserve_cpu.linear import ReadableLinear
from specserve_cpu.options import AUTO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor

    from specserve.api.models import Activations
    from specserve_cpu.options import Inputs

LANES = 16
"""Outputs of a panel: where a stack's parts meet within one, they get one form."""
HALF_BLOCK, BLOCK = 16, 32
"""Groups of inputs are of 16, or of a multiple of 32."""
BITS = (4, 5, 6, 8)
MOST_LEVELS = 16
"""That may be any integers; more of them must be consecutive."""
EIGHT, EIGHT_BITS = 8, (-128, 127)
FOUR_BITS = tuple(range(16))
LARGEST_HALF = 65504.0


class CodedLinear(ReadableLinear):
    """Of weights with scales, and perhaps offsets, of groups of inputs."""

    def __init__(
        self, machine: _native.Machine, parts: Iterable[QuantisedWeight], bias: Tensor | None, inputs: Activations
    ) -> None:
        """parts: below each other, at least one; each is packed before the next one is asked for."""
        others = iter(parts)
        first = next(others)
        self.padding = 0
        self.dtype = first.dtype
        self.form = "coded", inputs
        packed = map(native_part, chain((first,), others))
        self.native = native_module(self.dtype).PackedLinear(machine, packed, inputs, bias)
        self.out_features, self.in_features = self.native.out_features, first.shape[1]


def codable(weight: StackedWeight) -> tuple[QuantisedWeight, ...] | None:
    """The weight in parts as they can be packed; None where its groups are of other sizes."""
    parts = weight.parts
    if not all(is_codable(part) for part in parts):
        return None
    if all(part.shape[0] % LANES == 0 for part in parts[:-1]):
        return parts
    size = min(min(part.group_size, BLOCK) for part in parts)
    return (stacked([in_eight_bits(part, size) for part in parts]),)


class NotPackedInPieces(Exception):
    """Pieces of a weight that are not packed one after the other."""


def codable_pieces(pieces: Iterable[QuantisedWeight | Tensor]) -> Iterator[QuantisedWeight]:
    """The same pieces. NotPackedInPieces where one has groups of other sizes, or ends within a panel."""
    outputs = 0
    for piece in pieces:
        if not isinstance(piece, QuantisedWeight) or not is_codable(piece) or outputs % LANES:
            raise NotPackedInPieces
        outputs += piece.shape[0]
        yield piece


def is_codable(weight: QuantisedWeight) -> bool:
    size = weight.group_size
    return weight.num_groups == 1 or size == HALF_BLOCK or size % BLOCK == 0


def in_eight_bits(weight: QuantisedWeight, group_size: int) -> QuantisedWeight:
    """The same numbers, in the form that holds those of all formats."""
    groups = -(-weight.shape[1] // group_size)
    each = torch.arange(groups) * group_size // weight.group_size
    scales = numbers_of(weight.scales)[:, each]
    offsets = torch.zeros_like(scales) if weight.offsets is None else numbers_of(weight.offsets)[:, each]
    return weight._replace(scales=scales, offsets=offsets, group_size=group_size, levels=None)


def stacked(parts: Sequence[QuantisedWeight]) -> QuantisedWeight:
    """Parts of one form below each other."""
    integers = torch.cat([part.integers for part in parts])
    scales = torch.cat([numbers_of(part.scales) for part in parts])
    offsets = torch.cat([numbers_of(part.offsets) for part in parts if part.offsets is not None])
    return parts[0]._replace(integers=integers, scales=scales, offsets=offsets)


class Levels(NamedTuple):
    """bits: of a code; shown: as the native module has the levels."""

    bits: int
    shown: list[int]


def levels_of(levels: tuple[int, ...] | None) -> Levels:
    if levels is None:
        return Levels(EIGHT, [*EIGHT_BITS])
    if len(levels) == levels[-1] - levels[0] + 1:
        return Levels(next(bits for bits in BITS if len(levels) <= 1 << bits), [levels[0], levels[-1]])
    return Levels(4, [*levels]) if len(levels) <= MOST_LEVELS else Levels(EIGHT, [*EIGHT_BITS])


def native_part(weight: QuantisedWeight) -> _native.CodedPart:
    bits, levels = levels_of(weight.levels)
    size = weight.group_size if weight.num_groups > 1 else -(-weight.shape[1] // BLOCK) * BLOCK
    units, steps = native_numbers(weight.scales)
    offsets = (None, None) if weight.offsets is None else native_numbers(weight.offsets)
    return _native.CodedPart(weight.integers.contiguous(), size, bits, levels, units, steps, *offsets)


def native_numbers(numbers: Tensor | Factors) -> tuple[Tensor, Tensor | None]:
    """Units and steps."""
    if isinstance(numbers, Factors):
        return numbers.units.contiguous(), numbers.steps.contiguous()
    return numbers.contiguous(), None


def has_few_bits(weight: QuantisedWeight) -> bool:
    return levels_of(weight.levels).bits < EIGHT


def inputs_of(weight: QuantisedWeight, option: Inputs) -> Activations:
    """What the weight is multiplied by: as the option says, else as weights of its kind are made for."""
    if option == AUTO:
        return "int8" if has_few_bits(weight) else weight.activations
    return "int8" if option == "int8" else AUTO


def quantise_to_four(weight: Tensor) -> QuantisedWeight:
    """weight: [out, in] -> 4 bits, with a scale and an offset for each output and 32 inputs, which fit into 16 bits. An
    integer is the nearest; ValueError where the weight is not finite."""
    outs, ins = weight.shape
    wide = F.pad(weight.float(), (0, -ins % BLOCK), mode="constant")
    groups = wide.view(outs, -1, BLOCK)
    if ins % BLOCK:
        groups[:, -1, ins % BLOCK :] = groups[:, -1, :1]
    if not groups.isfinite().all():
        raise ValueError("the weight is not finite")
    least, most = groups.amin(-1), groups.amax(-1)
    offsets = least.clamp(-LARGEST_HALF, LARGEST_HALF).half().float()
    scales = ((most - offsets) / FOUR_BITS[-1]).clamp(0, LARGEST_HALF).half().float()
    steps = ((groups - offsets[..., None]) / scales[..., None]).nan_to_num_(0, 0, 0)
    packed = steps.round_().clamp_(0, FOUR_BITS[-1]).to(torch.int8).view(outs, -1)[:, :ins].contiguous()
    return QuantisedWeight(packed, scales, BLOCK, weight.dtype, "int8", offsets, FOUR_BITS)
