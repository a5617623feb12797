"""Files whose weights are random blocks of any type of ggml: the package gguf cannot make those of 256 numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import conversion
import numpy as np

import gguf

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

HALVES = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_XS": (0,), "Q2_K": (80, 82), "Q3_K": (108,)}
"""Where a block has numbers of 16 bits."""


def with_random_blocks(patch: pytest.MonkeyPatch, kind: str) -> None:
    """The weights of files that are converted from now on, but for those that llama.cpp keeps as they are."""
    rng, whole = np.random.default_rng(0), conversion.write

    def write(writer: gguf.GGUFWriter, each: conversion.Named, _: str) -> None:
        if each.numbers.ndim < 2 or each.numbers.shape[-1] % 256 or "ssm_conv1d" in each.name:
            whole(writer, each, "F32")
        else:
            writer.add_tensor(each.name, blocks(kind, each.numbers.shape, rng), raw_dtype=type_named(kind))

    patch.setattr(conversion, "write", write)


def blocks(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Weights of the size that those of models have."""
    block, size = gguf.GGML_QUANT_SIZES[type_named(kind)]
    found = rng.integers(0, 256, (*shape[:-1], shape[-1] // block, size), np.uint8)
    for at in HALVES[kind]:
        numbers = rng.normal(0, 1e-4, (*found.shape[:-1], 1)).astype(np.float16)
        found[..., at : at + 2] = numbers.view(np.uint8)
    return found.reshape(*shape[:-1], -1)


type_named: Callable[[str], gguf.GGMLQuantizationType] = gguf.GGMLQuantizationType.__getitem__
