"""Heads that are compared with other engines: what these call them, and what is refused before anything is decoded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from benchmarks.cases.heads_elsewhere import chosen_by
from benchmarks.lib.report import Options
from benchmarks.peers.heads import peer_head
from toy_block_heads import BLOCK, write_block_head
from toy_heads import TARGET, write_head
from toy_parallel_heads import write_parallel_head

from specserve.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.cases.heads_elsewhere import Chosen


@pytest.fixture
def target(tmp_path: Path) -> str:
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TARGET))
    return str(folder)


def chosen(*rest: str, quick: bool = False) -> Chosen:
    return chosen_by(Options(threads=1, quick=quick, profile=False, rest=rest))


@pytest.mark.parametrize(
    ("form", "kind", "longest"),
    [("dflash", "dflash", BLOCK - 1), ("dspark", "dspark", BLOCK), ("speculators", "dspark", BLOCK - 1)],
)
def test_block_heads_have_the_length_of_their_blocks(
    tmp_path: Path, target: str, form: str, kind: str, longest: int
) -> None:
    head = peer_head(str(write_block_head(tmp_path / "head", form)), target)
    assert (head.kind, head.longest) == (kind, longest)


def test_heads_are_known_by_their_tensors_where_config_json_names_another_architecture(
    tmp_path: Path, target: str
) -> None:
    path = write_block_head(tmp_path / "head", "dflash", architectures=["Model"])
    assert peer_head(str(path), target).kind == "dflash"


def test_eagle3_heads_draft_chains_of_any_length(tmp_path: Path, target: str) -> None:
    path = write_head(tmp_path / "head", "specforge")
    assert peer_head(str(path), target) == (path, "eagle3", None)


@pytest.mark.parametrize("form", ["eagle", "nextn"])
def test_heads_of_other_kinds_are_refused(tmp_path: Path, target: str, form: str) -> None:
    with pytest.raises(ModelError, match=r"kind (eagle|mtp)\. Compared are EAGLE-3, DFlash and DSpark"):
        peer_head(str(write_head(tmp_path / "head", form)), target)


def test_p_eagle_heads_are_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(ModelError, match="is a P-EAGLE head"):
        peer_head(str(write_parallel_head(tmp_path / "head")), target)


def test_quick_asks_for_fewer_prompts_and_lengths() -> None:
    assert (chosen().prompts, chosen().steps) == (24, [3, 5, 7])
    assert (chosen(quick=True).prompts, chosen(quick=True).steps) == (4, [3])
    assert chosen("--prompts", "9", "--steps", "2", "6", quick=True)[2:4] == ([2, 6], 9)


@pytest.mark.parametrize("flag", ["--prompts", "--steps"])
@pytest.mark.parametrize("value", ["0", "-3", "two"])
def test_counts_that_are_not_above_0_are_refused(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        chosen(f"{flag}={value}")
    assert f"argument {flag}: expected a whole number above 0, got '{value}'" in capsys.readouterr().err


def test_chains_longer_than_a_block_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert chosen("--head", "demo-dspark").heads["demo"].longest == 7
    with pytest.raises(SystemExit):
        chosen("--head", "demo-dspark", "--steps", "3", "8")
    assert "--steps 8: a block of demo-dspark has 7 draft tokens. Give --steps of at most 7" in capsys.readouterr().err


def test_a_head_of_another_kind_ends_the_command_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        chosen("--head", "demo-mtp")
    assert "demo-mtp is a draft model of the kind mtp" in capsys.readouterr().err
