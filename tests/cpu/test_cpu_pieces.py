"""A weight of few bits that comes in pieces: packed as it comes, to the same bits, and no piece is kept."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import pytest
import torch
from coded_forms import FORMS, Form, Numbers, coded, rows_of
from native_cases import SETS, each_dtype, machine, randn, same_bits

from specserve.protocols.quantised import StackedWeight
from specserve_cpu.coded import CodedLinear
from specserve_cpu.kernels import CpuKernels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from specserve.protocols.quantised import QuantisedWeight

CUTS = (slice(0, 64), slice(64, 128), slice(128, 150))


def kernels(dtype: torch.dtype = torch.float32) -> CpuKernels:
    return CpuKernels(machine(SETS[0]), str(dtype).removeprefix("torch."))


def weight(name: str, dtype: torch.dtype = torch.float32) -> QuantisedWeight:
    return coded(FORMS[name], 150, 96, dtype)


@pytest.mark.parametrize("name", FORMS)
@each_dtype
def test_pieces_are_packed_to_the_bits_of_the_whole(dtype: torch.dtype, name: str) -> None:
    whole, x, bias = weight(name, dtype), randn(5, 96, dtype=dtype), randn(150, dtype=dtype)
    packed = kernels(dtype).prepare_pieces((rows_of(whole, cut) for cut in CUTS), bias)
    assert isinstance(packed, CodedLinear)
    assert (packed.out_features, packed.in_features) == (150, 96)
    expected = kernels(dtype).prepare_stacked(StackedWeight((whole,)), bias)
    assert expected is not None
    assert same_bits(packed(x), expected(x))
    assert torch.equal(packed.rows(torch.arange(150)), whole.dense())


def test_a_piece_is_freed_before_the_second_one_after_it_is_read() -> None:
    whole, kept = coded(FORMS["4 bits, offsets"], 64 * 6, 96), []

    def pieces() -> Iterator[QuantisedWeight]:
        for number in range(6):
            piece = rows_of(whole, slice(64 * number, 64 * (number + 1)))
            kept.append(weakref.ref(piece.integers))
            alive = [other for other in kept[1:] if other() is not None]  # the first one tells what all are
            assert len(alive) <= 2
            yield piece

    assert kernels().prepare_pieces(pieces(), None) is not None
    assert len(kept) == 6


def test_the_whole_weight_is_wanted_where_pieces_are_not_packed_as_few_bits() -> None:
    plain, few = coded(Form(None, 32, Numbers(torch.float16)), 64, 96), rows_of(weight("4 bits"), slice(0, 64))
    odd_groups = coded(Form(tuple(range(16)), 24, Numbers(torch.float16)), 64, 96)
    wanted: dict[str, list[QuantisedWeight | Tensor]] = {
        "8 bits and inputs that are not rounded, which have kernels of their own": [plain._replace(activations="auto")],
        "groups that no kernel has": [odd_groups],
        "such groups later": [few, odd_groups],
        "a tensor among them": [few, randn(64, 96)],
        "a piece that ends within a panel": [rows_of(few, slice(0, 20)), few],
    }
    for why, pieces in wanted.items():
        assert kernels().prepare_pieces(iter(pieces), None) is None, why
    assert kernels().prepare_pieces([few, plain], None) is not None
    assert kernels().prepare_pieces([plain, plain], None) is not None


def test_an_error_of_what_reads_the_pieces_is_not_hidden() -> None:
    def pieces() -> Iterator[QuantisedWeight]:
        yield rows_of(weight("4 bits"), slice(0, 64))
        raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):
        kernels().prepare_pieces(pieces(), None)


@each_dtype
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("inputs", ["auto", "int8"])
def test_rows_of_8_bits_are_read_again(dtype: torch.dtype, name: str, inputs: str) -> None:
    """Of a weight that is integers and scales alone; in bfloat16 with an odd number of inputs, too."""
    own = CpuKernels(machine(name), str(dtype).removeprefix("torch."))
    for size, group_size in ((96, 32), (95, 1 << 30)):
        plain = coded(Form(None, group_size, Numbers(torch.float32)), 150, size, dtype, activations=inputs)  # type: ignore[arg-type]
        packed = own.prepare_quantised(plain, None)
        assert packed is not None
        ids = torch.tensor([149, 0, 17, 17])
        assert torch.equal(packed.rows(ids), plain.dense()[ids])
