"""`specserve plugins matrix`, and the page that is made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from specserve.plugins.features import CORE_FEATURES
from specserve_server.cli import main

if TYPE_CHECKING:
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


ELSEWHERE = """
from specserve.declare import Provides
FITS = Provides("kernels", lambda config: None if config.device == "cuda" else "it serves CUDA alone")
"""


def test_a_plugin_that_is_off_is_in_no_line(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("a")
    install("elsewhere", provides={"kernel.cuda": "FITS"}, compat=ELSEWHERE)
    assert main(["plugins", "matrix"]) == 0
    here = capsys.readouterr().out.splitlines()
    assert (here[0].split(), here[-1]) == (["a"], "elsewhere is left out: it serves CUDA alone.")
    assert main(["plugins", "matrix", "--device", "cuda"]) == 0
    there = capsys.readouterr().out.splitlines()
    assert (there[0].split(), there[-1].split()[0]) == (["a", "elsewhere"], "graph.piecewise")


def write_report(folder: Path, *results: tuple[str, str, str]) -> str:
    entries = [{"outcome": o, "plugin": p, "what": w, "detail": "7 of 9"} for o, p, w in results]
    (folder / "report.json").write_text(json.dumps(entries))
    return str(folder / "report.json")


def test_what_the_kit_proved_is_shown(install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install_three(install)
    passed = [("passed", "b", "with a"), ("passed", "c", "as it is"), ("passed", "a", "with c")]
    report = write_report(tmp_path, *passed, ("failed", "a", "full graphs"))
    assert main(["plugins", "matrix", "--proofs", report]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown[1] == ["a", "-", "proven", "undeclared"], "a proof is none for what start-up refuses"
    assert shown[4 + list(CORE_FEATURES).index("logprobs")] == ["logprobs", "works", "works", "proven"]
    assert shown[4 + list(CORE_FEATURES).index("graph.full")] == ["graph.full", "works", "refused", "works"]
    assert main(["plugins", "matrix", "--json", "--proofs", report]) == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert first["proof"] == {"outcome": "passed", "plugin": "b", "what": "with a", "detail": "7 of 9"}


def test_a_page_in_html_has_the_same_cells(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install_three(install)
    report = write_report(tmp_path, ("passed", "b", "with a"))
    assert main(["plugins", "matrix", "--html", "--proofs", report]) == 0
    page = capsys.readouterr().out
    assert page.count('<td class="proven">proven</td>') == 2
    assert "<li>b: with a: 7 of 9</li>" in page
    assert page.count("<tr>") == 4 + len(CORE_FEATURES)


@pytest.mark.parametrize("content", [None, "{}", "no JSON"])
def test_a_file_that_is_no_report_is_refused(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    install_three(install)
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    assert main(["plugins", "matrix", "--proofs", str(tmp_path / "report.json")]) == 2
    assert "report.json " in (said := capsys.readouterr().err)
    assert "--specserve-report FILE" in said


def test_the_page_in_docs_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    report = str(PAGE.with_suffix(".json"))
    assert main(["plugins", "matrix", "--markdown", "--proofs", report]) == 0
    page = capsys.readouterr().out
    assert page == PAGE.read_text(), "make pages"
    assert "| works |" not in page, "make proofs"
