"""`specserve plugins matrix`, and the page that is made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from specserve.cli import main
from specserve.plugins.features import CORE_FEATURES

if TYPE_CHECKING:
    import pytest
    from fake_site import Install

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def install_three(install: Install) -> None:
    install("a", compatible={"lora.target": "WORKS"})
    install("b", provides="lora.target", conflicts={"graph.full": "FAILS", "observer.metrics": "FAILS"})
    install("c", provides="observer.metrics")


def test_every_pair_and_every_feature_of_the_core_is_in_it(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install_three(install)
    assert main(["plugins", "matrix"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown[0] == ["a", "b", "c"]
    assert shown[1:4] == [
        ["a", "-", "works", "undeclared"],
        ["b", "works", "-", "refused"],
        ["c", "undeclared", "refused", "-"],
    ]
    assert [row[0] for row in shown[4:]] == list(CORE_FEATURES)
    assert shown[4 + list(CORE_FEATURES).index("graph.full")] == ["graph.full", "works", "refused", "works"]


def test_as_json_each_pair_is_there_once(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install_three(install)
    assert main(["plugins", "matrix", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 3 + 3 * len(CORE_FEATURES)
    assert [(entry["left"], entry["right"], entry["kind"]) for entry in found[:3]] == [
        ("a", "b", "compatible"),
        ("a", "c", "undeclared"),
        ("b", "c", "conflict"),
    ]


def test_the_page_in_docs_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "matrix", "--markdown"]) == 0
    assert capsys.readouterr().out == PAGE.read_text(), "specserve plugins matrix --markdown > docs/compatibility.md"
