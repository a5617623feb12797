"""The stages of loading an engine, and who hears how far they are. The loading thread calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    ProgressCallback = Callable[[str, int, int], None]
    """`(stage, done, total)`; a total of 0: nothing of it can be counted."""

IMPORTING, DOWNLOADING = "importing plugins and torch", "downloading the model"
READING, PACKING = "reading weights", "packing weights"
ASSEMBLING, RECORDING = "making drafters, KV cache and planner", "recording graphs"
BYTE_STAGES = (READING,)
"""What they count is bytes."""


def not_shown(stage: str, done: int, total: int) -> None:
    """A `ProgressCallback` for nobody."""
