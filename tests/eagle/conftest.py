"""The helpers of other plugins' tests, for engines that have these plugins too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent.parent / name) for name in ("hybrid_attn", "lora", "faults", "models")]
