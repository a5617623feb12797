"""The helpers of tests/lora and tests/server, where both plugins serve together, and the benchmarks, which are no
installed package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent.parent / name) for name in ("lora", "server", "engine")]
sys.path.append(str(Path(__file__).parents[2]))
