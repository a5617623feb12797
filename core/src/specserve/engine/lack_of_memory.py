"""Loading that fails for want of memory, told as what it is: what is free, and which limit says so."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from specserve.engine.size_cache import free_memory_on
from specserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNS = ("allocate memory", "out of memory", "not enough memory", "start new thread")
"""In what torch, safetensors and Python say."""


@contextmanager
def lack_of_memory_told(model: str, device: str) -> Iterator[None]:
    """Raises ConfigError where the block fails for want of memory. Other errors pass."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_lack_of_memory(error):
            raise
        what = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(
            f"there is not enough memory to load model {model}: {free_memory_on(device)}. Free some, raise the limit, "
            f"or serve a smaller model, or one with smaller weights. The system said: {what}"
        ) from error


def is_lack_of_memory(error: BaseException) -> bool:
    has_sign = any(sign in str(error) for sign in SIGNS)
    return has_sign or isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
