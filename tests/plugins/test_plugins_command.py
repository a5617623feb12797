"""`specserve plugins list`, `check` and `explain`: their answers, and how little they import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from specserve_server.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from fake_site import Install

HEAVY = {"torch", "numpy", "aiohttp", "fake_this.plugin", "fake_that.plugin"}


@pytest.fixture
def installed(install: Install) -> None:
    install("ngram", provides="draft.chain", compatible={"lora.target": "WORKS"})
    install("lora", provides="lora.target", conflicts={"graph.full": "FAILS"})
    install("odd", provides="dist-odd.thing", conflicts={"lora.target": "FAILS"})


@pytest.mark.usefixtures("installed")
def test_list_shows_every_plugin_with_its_features(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "lora   1.0      dist-lora: lora.target",
        "ngram  1.0      dist-ngram: draft.chain",
        "odd    1.0      dist-odd: dist-odd.thing",
    ]


def test_list_shows_problems_and_defaults(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("cpu", provides="kernel.cpu")
    install("bad", provides="draft.chian")
    assert main(["plugins", "list"]) == 0
    out = capsys.readouterr().out
    assert "dist-cpu: kernel.cpu  (on by default)" in out
    assert "problem: in specserve.provides.bad: 'draft.chian' is not a known feature; did you mean 'draft.chain'" in out


@pytest.mark.usefixtures("installed")
def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[1] == {
        "name": "ngram",
        "version": "1.0",
        "api": 2,
        "distribution": "dist-ngram",
        "features": ["draft.chain"],
        "compatible": ["lora.target"],
        "conflicts": [],
        "default_on": False,
        "problems": [],
    }


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["ngram", "lora"], 0, "ngram works with lora: it works."),
        (["lora", "--graphs", "full"], 1, "lora cannot run with graph.full: both want the same thing."),
        (["lora", "odd"], 1, "lora cannot run with odd: both want the same thing."),
        (["ngram", "odd"], 1, 'Missing: "dist-odd.thing" = "fake_ngram.compat:CONSTANT"'),
        ([], 1, "ngram and odd are undeclared"),
    ],
)
def test_check_says_what_start_up_would(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugins", "check", *arguments]) == code
    assert said in capsys.readouterr().out


@pytest.mark.usefixtures("installed")
def test_check_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "check", "ngram", "lora", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is True
    assert [(f["left"], f["right"], f["kind"]) for f in answer["findings"]] == [("ngram", "lora", "compatible")]


@pytest.mark.usefixtures("installed")
def test_explain_names_the_declaration_and_the_features_that_meet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "explain", "lora", "ngram"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "lora works with ngram: it works.",
        "lora (dist-lora 1.0) provides lora.target.",
        "ngram (dist-ngram 1.0) provides draft.chain.",
        "Features that meet: lora.target with draft.chain.",
        'Declared in specserve.compatible.ngram, "lora.target": it works.',
    ]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("left", "right", "code", "said"),
    [
        ("lora", "graph.full", 0, "lora cannot run with graph.full: both want the same thing."),
        ("prefix_cache", "lora", 0, "lora works with prefix_cache: every plugin works with the core's own features"),
        ("lora", "draft.tree", 1, "lora and draft.tree are undeclared: lora does not say whether it works with it."),
        ("ngram", "lora.target", 0, "ngram works with lora.target: it works."),
        ("ngram", "odd", 1, "No declaration of either names the other."),
    ],
)
def test_explain_knows_features_too(
    left: str, right: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugins", "explain", left, right]) == code
    assert said in capsys.readouterr().out


@pytest.mark.usefixtures("installed")
def test_explain_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "explain", "odd", "lora", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["kind"], answer["sentence"]) == ("conflict", "odd cannot run with lora: both want the same thing.")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("arguments", [["check", "ngrm"], ["explain", "ngrm", "lora"]])
def test_an_unknown_name_is_an_error_with_a_suggestion(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugins", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("specserve: error: ")
    assert "did you mean 'ngram'?" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["list"], ["check", "this", "that"], ["explain", "this", "that"], ["explain", "that", "graph.full"]]
)
def test_the_commands_import_neither_torch_nor_plugins(arguments: list[str], install: Install, site: Path) -> None:
    install("this", compatible={"lora.target": "WORKS"})
    install("that", provides="lora.target", conflicts={"graph.full": "FAILS"}, entry="plugin:Plugin")
    program = (
        "import sys; from specserve_server.cli import main; main(sys.argv[1:]); "
        f"print('heavy:', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "plugins", *arguments],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "heavy: []"
    assert "that" in done.stdout


@pytest.mark.usefixtures("installed")
def test_check_refuses_options_of_a_plugin_that_is_not_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "check", "ngram", "--set", "ngarm.width=4"]) == 2
    assert "plugin ngarm, which is not installed; did you mean 'ngram'?" in capsys.readouterr().err
