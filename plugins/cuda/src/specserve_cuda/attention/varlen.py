"""Attention over packed sequences (varlen): torch's function, and a reference for machines without CUDA.

Both have the signature of `torch.nn.attention.varlen.varlen_attn` (torch 2.13). Knows nothing of batches or caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn import attention

from specserve.api import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

MIN_TORCH = "2.13"


class Varlen(Protocol):
    """query: [T, heads, D]; key, value: [K, kv_heads, D]; cu_seq_q, cu_seq_k: [N + 1] int32; seqused_k: [N] int32."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor,
        max_q: int,
        max_k: int,
        *,
        scale: float,
        window_size: tuple[int, int],
        enable_gqa: bool,
        seqused_k: Tensor,
        num_splits: int,
    ) -> Tensor: ...


def missing_varlen() -> str:
    """Why torch's own cannot be used here; empty where it can."""
    if torch.torch_version.TorchVersion(torch.__version__) < MIN_TORCH:
        return (
            f"it needs torch {MIN_TORCH} or newer, whose FlashAttention 2 takes num_splits, and this is torch "
            f"{torch.__version__}"
        )
    active = attention.current_flash_attention_impl()
    if active not in (None, "FA2"):
        return f"it is FlashAttention 2, and this process has activated {active}, whose order of sums differs"
    return ""


def torch_varlen() -> Varlen:
    """torch's own, where it takes what `flash` passes and computes it as FlashAttention 2 does."""
    if missing := missing_varlen():
        raise ConfigError(f"attention flash: {missing}. Change that, or choose another attention backend.")
    from torch.nn.attention.varlen import varlen_attn  # older torches lack it or its arguments

    function: Any = varlen_attn
    return function  # type: ignore[no-any-return]


def varlen_attn_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: Tensor,
    num_splits: int,
) -> Tensor:
    """A plain loop in float64, sequence by sequence. The causal mask is aligned to the bottom right."""
    out = torch.empty_like(query)
    q_offsets, k_offsets, lengths = cu_seq_q.tolist(), cu_seq_k.tolist(), seqused_k.tolist()
    for i, length in enumerate(lengths):
        q_rows, k_rows = slice(q_offsets[i], q_offsets[i + 1]), slice(k_offsets[i], k_offsets[i] + length)
        q, k, v = (t.transpose(0, 1).double() for t in (query[q_rows], key[k_rows], value[k_rows]))
        if enable_gqa:
            k, v = (t.repeat_interleave(len(q) // len(t), dim=0) for t in (k, v))
        index, position = torch.arange(length), torch.arange(q.shape[1])[:, None] + length - q.shape[1]
        hidden = torch.zeros(q.shape[1], length, dtype=torch.bool)
        if window_size[0] >= 0:
            hidden |= index < position - window_size[0]
        if window_size[1] >= 0:
            hidden |= index > position + window_size[1]
        scores = (q @ k.mT * scale).masked_fill(hidden, float("-inf"))
        out[q_rows] = (scores.softmax(-1) @ v).transpose(0, 1).to(out.dtype)
    return out
