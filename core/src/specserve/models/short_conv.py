"""Gated short convolution, the mixer of LFM2 (Liquid AI, 2025): y = C * conv(B * x), where B, C and x come from one map
of the row, and conv is a causal convolution of each channel over a few tokens.

Letters: T rows, H hidden size, L taps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.mixer import MixerConfig
from specserve.protocols import Mixer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from specserve.batch.preceding import PrecedingTokens
    from specserve.protocols.part import LinearMaps


class ShortConvConfig(MixerConfig, frozen=True, kw_only=True):
    taps: int
    """L: of the convolution, that on the token itself included."""
    biased: bool = False
    """Both maps and the convolution have biases."""
    block: str = "conv"
    """The path of its tensors within a layer."""

    def input_maps(self, hidden: int) -> LinearMaps:
        return {f"{self.block}.in_proj": (3 * hidden, hidden, self.biased)}

    def output_map(self, hidden: int) -> LinearMaps:
        return {f"{self.block}.out_proj": (hidden, hidden, self.biased)}

    def tensors(self, hidden: int) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {f"{self.block}.conv.weight": (hidden, 1, self.taps)}
        return shapes | ({f"{self.block}.conv.bias": (hidden,)} if self.biased else {})

    def token_width(self, hidden: int) -> int:
        return hidden

    def make(self, tensors: Mapping[str, Tensor]) -> ShortConv:
        weight, bias = tensors[f"{self.block}.conv.weight"], tensors.get(f"{self.block}.conv.bias")
        return ShortConv(weight.squeeze(1).T.contiguous(), bias)


class ShortConv(Mixer):
    """Keeps B * x of each token. Products and sums of the convolution are rounded each, in float32, from the token
    itself to the farthest, then the bias; the sum is rounded to the model's dtype, and so is its product with C."""

    takes_padding = True

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """weight: [L, H] float32, the last for the token itself; bias: [H] float32."""
        self.weight, self.bias = weight, bias
        self.token_width = self.out_features = weight.shape[1]
        self.reach = weight.shape[0] - 1

    def mix(self, rows: Tensor, kept: Tensor, tokens: PrecedingTokens) -> Tensor:
        b, c, x = rows.chunk(3, -1)
        bx = b * x
        if tokens.padded:
            real = tokens.own >= 0
            kept.index_copy_(0, tokens.own[real], bx[real])
        else:
            kept.index_copy_(0, tokens.own, bx)
        total = bx.float() * self.weight[-1]
        for distance in range(1, self.reach + 1):
            before = kept.index_select(0, tokens.before[:, distance - 1]).float() * self.weight[-1 - distance]
            total += before.masked_fill_(~tokens.exists[:, distance - 1, None], 0.0)
        if self.bias is not None:
            total += self.bias
        return c * total.to(rows.dtype)
