"""Pytest fixtures that come with the package. Imports nothing heavy: pytest loads this in every project."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a two-layer random Llama with a byte-level tokenizer of 320 tokens."""
    from specserve.testing.toy import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("toy") / "llama")
