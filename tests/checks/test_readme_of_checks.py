"""The README of specserve-checks says what its functions do."""

from __future__ import annotations

import doctest
from pathlib import Path

README = Path(__file__).parents[2] / "checks" / "README.md"


def test_its_examples_give_what_it_says() -> None:
    failed, tried = doctest.testfile(str(README), module_relative=False)
    assert (failed, tried) == (0, 5)
