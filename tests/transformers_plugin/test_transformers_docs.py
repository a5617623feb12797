"""docs/transformers.md: its tables have the models that the tests compare."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from architectures import KINDS, REFUSED, SERVED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "transformers.md").read_text()


def rows(kind):
    table = PAGE.partition(f"<!-- {kind} -->\n")[2].partition(f"<!-- {kind} -->")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def test_the_tables_have_the_models_of_the_tests():
    assert rows("served") == sorted(SERVED)
    assert rows("refused") == sorted(REFUSED)
    assert len(SERVED) == 34
    assert set(KINDS) <= SERVED.keys()


@pytest.mark.sweep
def test_the_tables_say_what_is_found(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    table = __import__("transformers_table")
    monkeypatch.delitem(sys.modules, "transformers_table")
    for found in (table.served(), table.refused()):
        for row in found:
            assert row in PAGE
