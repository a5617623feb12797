"""Writes NaN, infinities or other values into a checkpoint's weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


def spoil(model: Path, name: str, rows: Any, value: float) -> Path:
    """Sets these rows of a tensor, in place; returns `model`."""
    weights = load_file(model / "model.safetensors")
    weights[name][rows] = value
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    return model
