"""Draft adapters of the plugin uno, random ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve_workbench.testing.requests import TOY_VOCAB
from toy_adapters import write_adapter

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = 6
UNO_CONFIG = {"mask_token_id": TOY_VOCAB - 5, "block_size": BLOCK}


def write_draft_adapter(path: Path, target: Path, **config: Any) -> Path:
    """Some of its drafts are right, of requests that prefer a few tokens."""
    return write_adapter(path, target, **({"rank": 5, "size": 0.1, "seed": 31, "uno_config": UNO_CONFIG} | config))
