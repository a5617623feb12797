"""The helpers of other plugins' tests, for models whose files have a block that drafts."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent.parent / name) for name in ("eagle", "models", "hybrid_attn", "lora", "faults")]
