"""The helpers of plugins' tests, for engines that have these plugins."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [
    str(Path(__file__).parent.parent / name) for name in ("adaptive", "cuda", "engine", "eagle", "lora", "faults")
]
