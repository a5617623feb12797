"""The demo model, a tiny tokenizer, and one thread again after every test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def one_thread_afterwards():
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def demo_model() -> Path:
    return locate_model("demo")


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    from tiny_tokenizer import write_model_dir

    path = tmp_path_factory.mktemp("model")
    write_model_dir(path)
    return HfTokenizer.from_dir(path)
