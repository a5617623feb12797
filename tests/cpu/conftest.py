"""One torch thread, as in an engine with these kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _one_thread_without_gradients() -> Iterator[None]:
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
