"""The functions that transformers calls for attention and for experts, registered under one name.

No function for masks is registered under that name: transformers then makes none. Which layer a module is, and what
computes it, stands in the module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

if TYPE_CHECKING:
    from torch import Tensor, nn

NAME = "specserve"
ATTENTION, EXPERTS = "specserve_attention", "specserve_experts"
"""Attributes of modules that call the functions."""


class AttentionCall(Protocol):
    """What a layer's module has as `specserve_attention`."""

    def __call__(
        self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: object, settings: dict[str, Any]
    ) -> Tensor:
        """q: [1, heads, T, d]; k: [1, kv_heads, T, d]; v: [1, kv_heads, T, d_v] -> [1, T, heads, d_v]."""
        ...


class ExpertsCall(Protocol):
    """What a module of experts has as `specserve_experts`."""

    def __call__(self, module: nn.Module, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """hidden: [T, H]; index: [T, k] int64; weights: [T, k] -> [T, H]."""
        ...


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: object, **settings: Any
) -> tuple[Tensor, None]:
    call: AttentionCall = module.__dict__[ATTENTION]
    with torch._C.DisableTorchFunction():
        return call(module, query, key, value, attention_mask, settings), None


def apply_experts(
    module: nn.Module, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor, **settings: Any
) -> Tensor:
    call: ExpertsCall = module.__dict__[EXPERTS]
    with torch._C.DisableTorchFunction():
        return call(module, hidden_states, top_k_index, top_k_weights)


def register() -> None:
    ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
    ALL_EXPERTS_FUNCTIONS.register(NAME, apply_experts)
