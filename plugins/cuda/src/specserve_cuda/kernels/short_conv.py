"""The gated short convolution as two launches: what is kept of each row, then the convolution over what is kept.

Slots are parts of tensors whose addresses follow the number of rows: kernels are not specialised on them. Imports
Triton.
"""
# mypy: disable-error-code="untyped-decorator"
# (triton ships no types)

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from specserve.api import Mixer
from specserve_cuda.launch import Launch, blocks, dense

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api.batch import PrecedingTokens
    from specserve.api.models import ShortConv

CONV_BLOCK = 512


@triton.jit
def gated_input(rows: tl.tensor, row: tl.tensor, columns: tl.tensor, inside: tl.tensor, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """B * x of a row [B ; C ; x], rounded to its dtype."""
    source = rows + row * 3 * CHANNELS + columns
    b = tl.load(source, mask=inside, other=0.0)
    x = tl.load(source + 2 * CHANNELS, mask=inside, other=0.0)
    return (b.to(tl.float32) * x.to(tl.float32)).to(b.dtype)


@triton.jit(do_not_specialize_on_alignment=["own"])
def keep_product_kernel(
    rows: tl.tensor, kept: tl.tensor, own: tl.tensor, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    """kept: [slots, CHANNELS]; own: [T] int64, negative for padding, of which nothing is kept."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < CHANNELS
    slot = tl.load(own + row)
    product = gated_input(rows, row, columns, inside, CHANNELS)
    tl.store(kept + slot * CHANNELS + columns, product, mask=inside & (slot >= 0))


@triton.jit(do_not_specialize_on_alignment=["before", "exists"])
def short_conv_kernel(
    rows: tl.tensor,
    kept: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    before: tl.tensor,
    exists: tl.tensor,
    out: tl.tensor,
    CHANNELS: tl.constexpr,
    REACH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """weight: [REACH + 1, CHANNELS] float32, the last for the row itself; before, exists: [T, REACH]. From the row
    itself to the farthest token, then the bias; the sum is rounded, and so is its product with C."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < CHANNELS
    own = gated_input(rows, row, columns, inside, CHANNELS)
    total = own.to(tl.float32) * tl.load(weight + REACH * CHANNELS + columns, mask=inside, other=0.0)
    for distance in tl.static_range(REACH):
        slot = tl.load(before + row * REACH + distance)
        there = tl.load(exists + row * REACH + distance) != 0
        past = tl.load(kept + slot * CHANNELS + columns, mask=inside & there, other=0.0)
        tap = tl.load(weight + (REACH - 1 - distance) * CHANNELS + columns, mask=inside, other=0.0)
        total += past.to(tl.float32) * tap
    if HAS_BIAS:
        total += tl.load(bias + columns, mask=inside, other=0.0)
    c = tl.load(rows + row * 3 * CHANNELS + CHANNELS + columns, mask=inside, other=0.0)
    rounded = total.to(c.dtype).to(tl.float32)
    tl.store(out + row * CHANNELS + columns, (c.to(tl.float32) * rounded).to(c.dtype), mask=inside)


class TritonShortConv(Mixer):
    """conv: the core's, whose weights it reads."""

    takes_padding = True

    def __init__(self, conv: ShortConv) -> None:
        self.token_width, self.out_features, self.reach = conv.token_width, conv.out_features, conv.reach
        self.weight, self.has_bias = dense(conv.weight), conv.bias is not None
        self.bias = self.weight if conv.bias is None else dense(conv.bias)
        sizes = {"CHANNELS": conv.out_features, "BLOCK": CONV_BLOCK}
        self.keep = Launch(keep_product_kernel, sizes, num_warps=4)
        self.convolve = Launch(
            short_conv_kernel, {**sizes, "REACH": conv.reach, "HAS_BIAS": self.has_bias}, num_warps=4
        )

    def mix(self, rows: Tensor, kept: Tensor, tokens: PrecedingTokens) -> Tensor:
        rows, out = dense(rows), rows.new_empty((len(rows), self.out_features))
        grid = len(rows), blocks(self.out_features, CONV_BLOCK)
        self.keep(*grid, rows, kept, tokens.own)
        self.convolve(*grid, rows, kept, self.weight, self.bias, tokens.before, tokens.exists, out)
        return out
