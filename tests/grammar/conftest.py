"""The helpers of tests/lora and tests/server, where both plugins serve together."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent.parent / name) for name in ("lora", "server", "engine")]
