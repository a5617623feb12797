"""The short convolution in one native call: the bits of torch's operations, each row by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch
from native_cases import each_dtype, each_set, machine, randn, same_bits

from specserve.batch.preceding import PrecedingTokens
from specserve.models.short_conv import ShortConv
from specserve_cpu.short_conv import NativeShortConv

if TYPE_CHECKING:
    from torch import Tensor

SLOTS = 160
UNUSUAL = (float("nan"), float("inf"), -float("inf"), 3e38, 0.0, -0.0)
"""Without numbers so small that bfloat16 has fewer bits for them: instruction sets and torch treat them differently."""


class Case(NamedTuple):
    conv: ShortConv
    rows: Tensor
    kept: Tensor
    tokens: PrecedingTokens


def case(count: int, size: int, taps: int, dtype: torch.dtype, *, biased: bool = False, seed: int = 0) -> Case:
    """Tokens before a row are rows before it, other slots, or none."""
    generator = torch.Generator().manual_seed(seed)
    own = torch.randperm(SLOTS, generator=generator)[:count]
    of_rows = torch.rand(count, generator=generator)[:, None].expand(count, taps - 1) * torch.arange(count)[:, None]
    others = torch.tensor(sorted(set(range(SLOTS)) - set(own.tolist())))
    elsewhere = others[torch.randint(len(others), (count, taps - 1), generator=generator)]
    is_row = (torch.rand((count, taps - 1), generator=generator) < 0.6) & (torch.arange(count)[:, None] > 0)
    before = torch.where(is_row, own[of_rows.long()], elsewhere)
    exists = torch.rand((count, taps - 1), generator=generator) < 0.8
    bias = randn(size, seed=seed + 4) if biased else None
    return Case(
        ShortConv(randn(taps, size, seed=seed + 1), bias),
        randn(count, 3 * size, dtype=dtype, seed=seed + 2),
        randn(SLOTS, size, dtype=dtype, seed=seed + 3),
        PrecedingTokens(own, before.masked_fill(~exists, 0), exists),
    )


def mixed(isa: str, given: Case, threads: int = 1) -> tuple[Tensor, Tensor]:
    """The rows' outputs, and what is kept then."""
    kept = given.kept.clone()
    native = NativeShortConv(machine(isa, threads), given.conv, kept.dtype)
    return native.mix(given.rows, kept, given.tokens), kept


def same(a: Tensor, b: Tensor) -> bool:
    """Bits, but for those of numbers that are none."""
    assert torch.equal(a.isnan(), b.isnan())
    return same_bits(a.masked_fill(a.isnan(), 1.0), b.masked_fill(b.isnan(), 1.0))


def check(isa: str, given: Case, threads: int = 1) -> None:
    kept = given.kept.clone()
    expected = given.conv.mix(given.rows, kept, given.tokens)
    got, got_kept = mixed(isa, given, threads)
    assert same(got, expected)
    assert same(got_kept, kept)


@each_set
@each_dtype
def test_any_number_of_rows_has_the_bits_of_torch(isa: str, dtype: torch.dtype) -> None:
    for count in range(1, 71):
        check(isa, case(count, 40, 3, dtype, seed=count), threads=1 + count % 3)


@each_set
@each_dtype
@pytest.mark.parametrize("size", [1, 15, 16, 33, 130])
def test_any_channels_taps_and_biases_have_the_bits_of_torch(isa: str, dtype: torch.dtype, size: int) -> None:
    for taps in (1, 2, 3, 7, 20):
        for biased in (False, True):
            check(isa, case(9, size, taps, dtype, biased=biased, seed=taps), threads=2)


@each_set
@each_dtype
def test_numbers_that_are_none_stay_where_torch_has_them(isa: str, dtype: torch.dtype) -> None:
    kinds = torch.tensor(UNUSUAL).to(dtype)
    for seed in range(20):
        given = case(30, 33, 3, dtype, biased=seed % 2 == 0, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        for x in (given.rows, given.kept):
            chosen = kinds[torch.randint(len(kinds), x.shape, generator=generator)]
            x.copy_(torch.where(torch.rand(x.shape, generator=generator) < 0.1, chosen, x))
        check(isa, given)


@each_set
@each_dtype
def test_a_row_has_the_same_bits_alone_and_among_others_that_are_no_numbers(isa: str, dtype: torch.dtype) -> None:
    given = case(23, 50, 3, dtype)
    expected, kept = mixed(isa, given)
    for row in range(len(given.rows)):
        own, before, exists = (x[row : row + 1] for x in given.tokens[:3])
        alone = Case(given.conv, given.rows[row : row + 1], kept.clone(), PrecedingTokens(own, before, exists))
        assert same_bits(mixed(isa, alone)[0], expected[row : row + 1])
        spoilt = torch.full_like(kept, float("nan"))
        read = before[exists]
        spoilt[read] = kept[read]
        assert same_bits(mixed(isa, alone._replace(kept=spoilt))[0], expected[row : row + 1])


def test_a_slot_that_is_not_there_is_refused() -> None:
    given = case(4, 16, 3, torch.float32)
    for field in ("own", "before"):
        slots = getattr(given.tokens, field).clone()
        for wrong in (SLOTS, -2):
            slots[1] = wrong
            with pytest.raises(ValueError, match=rf"slots must be in \[0, {SLOTS}\); got {wrong}"):
                mixed("portable", given._replace(tokens=given.tokens._replace(**{field: slots})))


@pytest.mark.parametrize(("what", "shape"), [("rows", (4, 47)), ("kept", (SLOTS, 15)), ("exists", (4, 3))])
def test_tensors_of_another_shape_are_refused(what: str, shape: tuple[int, ...]) -> None:
    given, exists = case(4, 16, 3, torch.float32), torch.zeros(shape, dtype=torch.bool)
    of_exists = given._replace(tokens=given.tokens._replace(exists=exists))
    changed = of_exists if what == "exists" else given._replace(**{what: torch.zeros(shape)})
    with pytest.raises(ValueError, match=rf"^{what} must be "):
        mixed("portable", changed)
