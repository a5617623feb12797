"""The fake engine of tests/server, for the page's routes."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "server"), str(TESTS / "text")]
