"""Calls of transformers' layers without detours: the same numbers with fewer calls of Python and torch.

The wrappers around a layer's forward serve training and old names of arguments. Rotations of queries and of keys are
one where that has the same bits.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from specserve_transformers.interface import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

WRAPPERS = ("transformers/utils/deprecation.py", "transformers/modeling_layers.py")
"""Files of transformers whose wrappers of a forward rename old arguments and save memory in training."""
ROTATION = "apply_rotary_pos_emb"
"""What transformers' layers call the function that rotates queries and keys."""


class DirectCalls:
    """Of one model. `rotations`: by transformers' function, what its layers share."""

    def __init__(self) -> None:
        self.rotations: dict[Any, JointRotation | None] = {}

    def install(self, module: nn.Module, *, is_attention: bool) -> None:
        forward: Any = type(module).forward
        while (inner := getattr(forward, "__wrapped__", None)) and forward.__code__.co_filename.endswith(WRAPPERS):
            forward = inner
        if is_attention:
            forward = self.with_joint_rotation(forward)
            if hasattr(module, "config"):
                module.__dict__["config"] = PlainConfig(module.config)
        if forward is not type(module).forward:
            module.forward = forward.__get__(module)

    def with_joint_rotation(self, forward: Any) -> Any:
        """The same function, with a rotation of queries and keys together where its own has the same bits."""
        if not isinstance(forward, FunctionType) or ROTATION not in forward.__code__.co_names:
            return forward
        own = forward.__globals__.get(ROTATION)
        if own not in self.rotations:
            self.rotations[own] = JointRotation(own) if own is not None and rotates_halves(own) else None
        if (joint := self.rotations[own]) is None:
            return forward
        names = {**forward.__globals__, ROTATION: joint}
        made = FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
        made.__kwdefaults__ = forward.__kwdefaults__
        return made


class PlainConfig:
    """A configuration for a layer's reading in every call: transformers' own looks each name up in several places."""

    def __init__(self, config: Any) -> None:
        self.__dict__["config"] = config
        self._attn_implementation = NAME

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["config"], name)


def rotates_halves(own: Callable[..., Any]) -> bool:
    """Whether the function has the bits of a joint rotation, in every dtype."""
    numbers = torch.Generator().manual_seed(7)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        q, k = (torch.randn((1, heads, 5, 16), generator=numbers).to(dtype) for heads in (4, 2))
        cos, sin = (torch.randn((1, 5, 16), generator=numbers).to(dtype) for _ in range(2))
        try:
            theirs = own(q, k, cos, sin)
        except Exception:
            return False
        ours = JointRotation(own)(q, k, cos, sin)
        if not all(torch.equal(one, other) for one, other in zip(theirs, ours, strict=True)):
            return False
    return True


class JointRotation:
    """q: [1, heads, T, d]; k: [1, kv_heads, T, d]; cos, sin: [1, T, d], which all layers of a step share."""

    def __init__(self, own: Callable[..., Any]) -> None:
        self.own = own
        self.given: tuple[Tensor, Tensor] | None = None
        self.cos: Tensor | None = None
        self.sin: Tensor | None = None
        """What was given last, as it is multiplied: the first half of sin is negated, so that a rolled head needs no
        sign."""

    def __call__(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> Any:
        size = q.shape[-1]
        if args or kwargs or cos.dim() != 3 or cos.shape[-1] != size or k.shape[-1] != size or cos.dtype != q.dtype:
            return self.own(q, k, cos, sin, *args, **kwargs)
        if self.given is None or self.given[0] is not cos or self.given[1] is not sin:
            self.given, self.cos = (cos, sin), cos.unsqueeze(1)
            self.sin = torch.cat((-sin[..., : size // 2], sin[..., size // 2 :]), -1).unsqueeze(1)
        assert self.cos is not None
        assert self.sin is not None
        both = torch.cat((q, k), 1)
        rotated = (both * self.cos).add_(both.roll(size // 2, -1).mul_(self.sin))
        return rotated.split_with_sizes((q.shape[1], k.shape[1]), 1)
