"""The demo model, and one thread again after every test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from specserve.models.locate import locate_model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def one_thread_afterwards():
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def demo_model() -> Path:
    return locate_model("demo")
