"""Pages are read, laid out and illustrated by the repository's tools."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tools"), str(ROOT / "tests" / "page")]
