"""Toy checkpoints changed on disk: their tensors and their JSON files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file

from specserve.models.safetensors_header import SINGLE

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


def change_tensors(path: Path, **changes: Tensor | None) -> Path:
    """Add or replace tensors of the model in directory `path`; None removes one. Returns `path`."""
    tensors = load_file(path / SINGLE) | changes
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, path / SINGLE)
    return path


def change_json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
