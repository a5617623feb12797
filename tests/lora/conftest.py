"""Adapters of mixed ranks and targets for the toy model, and the helpers of tests/server and tests/text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from toy_adapters import write_adapters

sys.path += [str(Path(__file__).parent.parent / name) for name in ("text", "server", "engine")]


@pytest.fixture(scope="session")
def adapters(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """a0 to a7."""
    return write_adapters(tmp_path_factory.mktemp("adapters"), toy_model, 8)
