"""Which keys a layer's queries see, as transformers' own functions for masks say it.

In a pass of the probe, masks are this module's objects, made of the functions that decide about a query and a key;
served models have no masks. Knows nothing of layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from specserve_transformers.interface import apply_experts, attend

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "specserve_masks"
"""Under it the functions of `specserve_transformers.interface` get masks."""


class UnservedMask(Exception):
    """Its text says what the mask is."""


class Mask:
    """sees: of (batch, head, query, key), numbers or tensors of them."""

    ndim = 4

    def __init__(self, sees: Callable[..., Any]) -> None:
        self.sees = sees

    def window(self, length: int) -> int | None:
        """How many keys a query sees, itself included, in a context of `length` tokens; None: all before it."""
        last = self.keys_of(length - 1, length)
        window = int(last.sum())
        for query in {0, 1, window - 1, window, window + 1, length // 2, length - 2, length - 1}:
            if 0 <= query < length and not torch.equal(self.keys_of(query, length), in_window(query, window, length)):
                raise UnservedMask(
                    f"a mask under which the query at position {query} sees other keys than the last ones"
                )
        return None if window == length else window

    def keys_of(self, query: int, length: int) -> torch.Tensor:
        zero = torch.zeros((), dtype=torch.int64)
        try:
            seen = self.sees(zero, zero, torch.tensor(query), torch.arange(length))
        except Exception as error:
            raise UnservedMask(f"a mask that depends on more than positions ({type(error).__name__})") from error
        return torch.as_tensor(seen).broadcast_to((length,))


def in_window(query: int, window: int, length: int) -> torch.Tensor:
    keys = torch.arange(length)
    return (keys <= query) & (keys > query - window)


def make_mask(*_: Any, mask_function: Callable[..., Any], **settings: Any) -> Mask:
    return Mask(mask_function)


def register() -> None:
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, make_mask)
    ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
    ALL_EXPERTS_FUNCTIONS.register(NAME, apply_experts)
