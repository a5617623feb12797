"""The benchmarks are no installed package: tests find them in the repository."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
