"""One torch thread, as in an engine with these kernels. The benchmarks are no installed package: tests find them in the
repository.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

sys.path += [str(Path(__file__).parents[2]), str(Path(__file__).parent.parent / "models")]


@pytest.fixture(autouse=True)
def _one_thread_without_gradients() -> Iterator[None]:
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
