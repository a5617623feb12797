"""The demo model in a Python for aarch64: neither drafts nor neighbours change a bit, whatever the instruction set."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from emulated import NEWEST, python

GENERATE = Path(__file__).parent / "generate.py"
TOKENS_ALIKE = 4
"""Of a greedy answer: sums in other orders choose the same tokens until two are nearly equal."""


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    """By instruction set and run: see generate.py."""
    answers: dict[str, dict[str, Any]] = json.loads(python(NEWEST, GENERATE, seconds=3600))
    return answers


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    """The same on this machine's own processor, with the portable kernels."""
    run = subprocess.run([sys.executable, GENERATE, "portable"], capture_output=True, text=True, check=True)
    answers: dict[str, dict[str, Any]] = json.loads(run.stdout)
    return answers["portable"]


@pytest.mark.parametrize("other", ["together", "ngram", "eagle"])
def test_a_request_has_the_bits_that_it_has_alone(answers: dict[str, dict[str, Any]], other: str) -> None:
    for instruction_set, runs in answers.items():
        assert runs[other] == runs["alone"], instruction_set


@pytest.mark.parametrize("drafter", ["ngram", "eagle"])
def test_drafts_are_accepted(answers: dict[str, dict[str, Any]], drafter: str) -> None:
    assert all(runs[f"accepted of {drafter}"] > 0 for runs in answers.values())


def test_portable_kernels_choose_the_tokens_of_this_machine(
    answers: dict[str, dict[str, Any]], here: dict[str, Any]
) -> None:
    assert tokens(answers["portable"]["alone"]) == tokens(here["alone"])
    for drafter in ("ngram", "eagle"):
        assert answers["portable"][f"accepted of {drafter}"] == here[f"accepted of {drafter}"]


def test_other_sets_begin_a_greedy_answer_as_portable_does(answers: dict[str, dict[str, Any]]) -> None:
    expected = tokens(answers["portable"]["alone"])["greedy"][:TOKENS_ALIKE]
    assert len(expected) == TOKENS_ALIKE
    for instruction_set, runs in answers.items():
        assert tokens(runs["alone"])["greedy"][:TOKENS_ALIKE] == expected, instruction_set


def tokens(run: dict[str, Any]) -> dict[str, list[int]]:
    return {name: output[0] for name, output in run.items()}
