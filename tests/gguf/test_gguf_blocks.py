"""Blocks of every type stand for the numbers that the package gguf reads from them, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gguf
from specserve.api.models import Factors
from specserve_gguf.blocks import FORMS
from specserve_gguf.blocks.unpacking import NUMBERS_AT_ONCE, unpacked
from specserve_gguf.ggml_types import TYPES

NUMBERS = {kind.name: number for number, kind in TYPES.items()}


def blocks(name, rows, columns, seed=0):
    """Random bytes: scales of any size and sign, subnormal ones, infinities and not-a-number among them."""
    kind = TYPES[NUMBERS[name]]
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, columns // kind.block, kind.num_bytes), np.uint8), kind.block


def reference(name, raw):
    with np.errstate(all="ignore"):
        found = gguf.quants.dequantize(raw.reshape(len(raw), -1), gguf.GGMLQuantizationType(NUMBERS[name]))
    return torch.from_numpy(np.asarray(found, np.float32))


def assert_same_bits(got, wanted):
    both_nan = got.isnan() & wanted.isnan()
    assert ((got.view(torch.int32) == wanted.view(torch.int32)) | both_nan).all()


@pytest.mark.parametrize("name", FORMS)
def test_random_blocks_are_what_ggml_says(name):
    raw, block = blocks(name, 96, 1024)
    assert_same_bits(unpacked(FORMS[name], raw, block).dense(), reference(name, raw))


@pytest.mark.parametrize("name", FORMS)
def test_blocks_of_zeros_and_of_ones_are_what_ggml_says(name):
    raw, block = blocks(name, 4, 512)
    raw[:2], raw[2], raw[3] = 0, 255, 1
    assert_same_bits(unpacked(FORMS[name], raw, block).dense(), reference(name, raw))


@pytest.mark.parametrize("name", FORMS)
def test_integers_have_the_levels_that_the_form_names(name):
    raw, block = blocks(name, 64, 1024)
    weight = unpacked(FORMS[name], raw, block)
    found = weight.integers.unique().tolist()
    assert found == list(weight.levels if weight.levels is not None else range(-128, 128))
    assert weight.integers.dtype == torch.int8
    assert weight.num_groups == 1024 // weight.group_size


def test_types_of_256_have_scales_of_two_factors():
    two = {name for name in FORMS if isinstance(unpacked(FORMS[name], *blocks(name, 2, 256)).scales, Factors)}
    assert two == {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"}


@pytest.mark.parametrize("name", ["Q4_1", "Q6_K"])
def test_a_tensor_that_is_unpacked_in_pieces_is_the_same(name):
    """More numbers than at once, and a last piece that is shorter."""
    raw, block = blocks(name, 2 * NUMBERS_AT_ONCE // 1024 + 3, 1024)
    assert_same_bits(unpacked(FORMS[name], raw, block).dense(), reference(name, raw))


def test_the_table_of_types_is_that_of_ggml():
    known = {kind.value: (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGML_QUANT_SIZES}
    assert {number: tuple(kind) for number, kind in TYPES.items()} == {n: known[n] for n in TYPES}
    assert known.keys() - TYPES.keys() == set()
