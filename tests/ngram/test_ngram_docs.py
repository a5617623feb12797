"""docs/ngram.md is held against the code that it describes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from specserve_ngram.observer import STATS
from specserve_ngram.options import NgramOptions

DOCS = (Path(__file__).parents[2] / "docs" / "ngram.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", DOCS, flags=re.MULTILINE))
FIELDS = msgspec.structs.fields(NgramOptions)


def shown(value: Any) -> str:
    if value is None:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def test_the_table_has_every_option_with_its_default_in_order() -> None:
    defaults = NgramOptions()
    expected = {field.name: shown(getattr(defaults, field.name)) for field in FIELDS}
    assert list({name: ROWS[name] for name in ROWS if name in expected}.items()) == list(expected.items())


@pytest.mark.parametrize("field", [f for f in FIELDS if "ge=" in str(f.type)], ids=lambda field: str(field.name))
def test_the_table_has_the_range_of_every_number(field: msgspec.structs.FieldInfo) -> None:
    (row,) = re.findall(rf"^\| `{field.name}` \| .*? \| (\d+) to ([\d^]+)", DOCS, flags=re.MULTILINE)
    least, most = row[0], 10**9 if row[1] == "10^9" else int(row[1])
    assert f"ge={least}" in str(field.type)
    assert f"le={most}" in str(field.type)


def test_every_metric_has_a_row() -> None:
    for name in (*(name for name, _, _ in STATS.values()), "specserve_ngram_corpora{state}"):
        assert f"| `{name}` |" in DOCS
