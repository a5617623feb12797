"""The helpers of other plugins' tests, for engines that have these plugins too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from toy_block_heads import ALL_FORMS, write_block_head

sys.path += [str(Path(__file__).parent.parent / name) for name in ("hybrid_attn", "lora", "faults", "models")]


@pytest.fixture(scope="session")
def block_heads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories by form."""
    path = tmp_path_factory.mktemp("block_heads")
    return {form: write_block_head(path / form, form) for form in ALL_FORMS}
