"""The Makefile runs with what macOS brings: GNU make 3.81 and the tools of BSD."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ("Makefile", ".ci/run")
NEWER = re.compile(
    r"\.(?:ONESHELL|RECIPEPREFIX|SHELLFLAGS)\b|^(?:undefine|private) |\$\((?:file|let|intcmp) |^\w+ *(?:!=|::)|&:"
    r"|^define \w+ *[:?+]?=",
    re.MULTILINE,
)
"""Of make, since 3.82."""
OF_GNU = re.compile(r"\b(?:nproc|sed -i|readlink -f|grep -\w*P|xargs -r|date -[dI]|stat -c|cp --|realpath)\b")


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_script_needs_a_newer_make_or_tools_of_gnu(script: str) -> None:
    text = (ROOT / script).read_text()
    assert [found[0] for found in (*NEWER.finditer(text), *OF_GNU.finditer(text))] == []


def test_what_is_newer_is_found() -> None:
    assert all(map(NEWER.search, (".ONESHELL:", "A != date", "A ::= b", "define a =\n", "a b &: c", "$(file >x)")))
    assert all(map(OF_GNU.search, ("-j$(nproc)", "sed -i s/a/b/ c", "grep -oP x")))
