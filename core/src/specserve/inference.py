"""`torch.inference_mode` for functions that are called both within and outside of it.

Plugins are called outside of it, except within a forward pass and a verification.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec

    P = ParamSpec("P")

R = TypeVar("R")


def inference(function: Callable[P, R]) -> Callable[P, R]:
    """The function in inference mode. To enter it takes several microseconds, which are saved where it is on."""

    @wraps(function)
    def within(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.is_inference_mode_enabled():
            return function(*args, **kwargs)
        with torch.inference_mode():
            return function(*args, **kwargs)

    return within
