"""The gated short convolution as one native call, with the bits of `specserve.api.models.ShortConv`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.api import Mixer
from specserve_cpu.attention import native_module
from specserve_cpu.dlpack import dlpack

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api.batch import PrecedingTokens
    from specserve.api.models import ShortConv
    from specserve_cpu import _native


class NativeShortConv(Mixer):
    """`native`: what it is in layers that are computed in native calls."""

    def __init__(self, machine: _native.Machine, conv: ShortConv, dtype: torch.dtype) -> None:
        self.token_width, self.out_features, self.reach = conv.token_width, conv.out_features, conv.reach
        self.native = native_module(dtype).ShortConv(machine, conv.weight, conv.bias)

    def mix(self, rows: Tensor, kept: Tensor, tokens: PrecedingTokens) -> Tensor:
        out = torch.empty((len(rows), self.out_features), dtype=rows.dtype)
        before, exists = dlpack(tokens.before), dlpack(tokens.exists)
        self.native.mix(dlpack(rows), dlpack(kept), dlpack(tokens.own), before, exists, dlpack(out))
        return out
