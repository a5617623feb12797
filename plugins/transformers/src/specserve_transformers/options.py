"""The plugin's options."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


class TransformersOptions(msgspec.Struct, frozen=True, kw_only=True):
    architectures: Annotated[
        Literal["unknown", "all"],
        msgspec.Meta(
            description="Which models transformers computes: those of architectures that no family of the engine or of "
            "another plugin has, or all."
        ),
    ] = "unknown"
