"""Shared by these tests: one torch thread, and the reference implementation without its progress bars."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path += [str(Path(__file__).parents[1] / name) for name in ("models", "lora")]


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _inference():
    with torch.inference_mode():
        yield
