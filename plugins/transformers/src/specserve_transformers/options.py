"""The options of transformers."""

from __future__ import annotations

from typing import Literal

import msgspec

Architectures = Literal["unknown", "all"]


class TransformersOptions(msgspec.Struct, frozen=True, kw_only=True):
    architectures: Architectures = "unknown"
    """Which models transformers computes: unknown, those of architectures that no family has; all, every model, also
    those that the engine computes faster by itself."""
