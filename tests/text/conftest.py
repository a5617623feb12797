"""The tiny tokenizer and its model directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tiny_tokenizer import write_model_dir

from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    write_model_dir(path)
    return path


@pytest.fixture(scope="session")
def tokenizer(model_dir: Path) -> HfTokenizer:
    return HfTokenizer.from_dir(model_dir)
