"""How much the tests of this folder try: all of it on a device, little in the dry run without one.

The dry run (tests/gpu_dry_run) only shows that the tests and what they call are whole, so few sizes do.
"""

from __future__ import annotations

import os

import pytest
import torch

DRY = "GPU_DRY_RUN_REPORT" in os.environ

DTYPES = [torch.bfloat16] if DRY else [torch.float32, torch.bfloat16, torch.float16]
NAMES = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
HALVES = [dtype for dtype in DTYPES if dtype != torch.float32]
SHAPES = [(320, 256), (100, 72)] if DRY else [(320, 256), (256, 704), (4096, 4096), (8192, 256), (100, 72)]
"""Of weights, [width, depth]."""
MOST_ROWS = 3 if DRY else 300
FEW_ROWS = 3 if DRY else 64
BATCH_SIZES = [4] if DRY else [1, 8, 32]
NUM_REQUESTS = 6 if DRY else 48

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_half = pytest.mark.parametrize("dtype", HALVES, ids=str)
each_dtype_name = pytest.mark.parametrize("dtype", NAMES)
