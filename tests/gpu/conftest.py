"""A CUDA device or a skip that says so; the models by path, since nothing need be installed on the GPU machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from specserve_workbench.testing import engines
from specserve_workbench.testing.fixtures import toy_model  # noqa: F401 (a fixture; as a plugin it may be registered already)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True, scope="session")
def _cuda():
    """The device's kernels are a default plugin."""
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device here")
    engines.DEFAULTS |= {"default_plugins": True, "no_plugins": ("cpu",)}


@pytest.fixture(scope="session")
def demo_model() -> Path:
    from specserve_demo import MODEL_DIR

    return MODEL_DIR
