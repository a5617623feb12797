"""Counter-based Gumbel noise: g(seed, index, token), the same on every call, device and batch shape.

Public: a drafter that samples its own draft tokens as argmax(draft logit + the same noise) agrees with the
target with probability near 1 - TV (the maximal-coupling argument for Gumbel-max sampling).

Row keys come from `seeds.row_key`; token t of a row mixes `key + (t + 1) * GAMMA`. The top 32 bits h make
w = (h + 1/2) / 2^32, and -log(-log(1 - w)) is standard Gumbel; large values keep their resolution because
they stem from small w.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from specserve.sampling.seeds import GAMMA, MASK, MULTIPLIERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

LANES = 64
"""Columns are padded to this, so that vectorised logarithms have no remainder loop, whose bits would differ."""
W_MAX = 1.0 - 2.0**-24


def signed(x: int) -> int:
    """The int64 with the bits of the unsigned x."""
    return x - (1 << 64) if x >= 1 << 63 else x


@lru_cache(maxsize=8)
def token_offsets(width: int, device: torch.device) -> Tensor:
    """(t + 1) * GAMMA modulo 2^64 for t < width, as int64."""
    return torch.tensor([signed((t + 1) * GAMMA & MASK) for t in range(width)], dtype=torch.int64, device=device)


def gumbel_noise(keys: Sequence[int], vocab_size: int, device: torch.device) -> Tensor:
    """Standard Gumbel noise [len(keys), vocab_size], float32."""
    h = noise_bits(keys, -(-vocab_size // LANES) * LANES, device)
    w = h.to(torch.float32).add_(0.5).mul_(2.0**-32).clamp_(max=W_MAX)
    return w.neg_().log1p_().neg_().log_().neg_()[:, :vocab_size]


def noise_bits(keys: Sequence[int], width: int, device: torch.device) -> Tensor:
    """[len(keys), width] int64 in [0, 2^32): integers alone, so the same on every device."""
    z = torch.tensor([signed(k) for k in keys], dtype=torch.int64, device=device)[:, None] + token_offsets(
        width, device
    )
    # int64 shifts are arithmetic: the mask clears the copies of the sign bit
    z = (z ^ ((z >> 30) & (1 << 34) - 1)) * signed(MULTIPLIERS[0])
    z = (z ^ ((z >> 27) & (1 << 37) - 1)) * signed(MULTIPLIERS[1])
    return ((z ^ ((z >> 31) & (1 << 33) - 1)) >> 32) & (1 << 32) - 1
