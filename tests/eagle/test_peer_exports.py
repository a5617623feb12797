"""Exports for other engines: made once, and again when a model changes that they were made of."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from benchmarks.peers import exports
from benchmarks.peers.exports import gguf_file

if TYPE_CHECKING:
    from pathlib import Path

CONVERTER = """
import sys
with open(sys.argv[1] + "/calls", "a") as calls:
    print(*sys.argv[2:], file=calls)
"""
"""Notes what it is asked for."""


def written(folder: Path) -> Path:
    folder.mkdir()
    for name in ("model.safetensors", "config.json"):
        (folder / name).touch()
    return folder


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    converter = tmp_path / "converter.py"
    converter.write_text(CONVERTER)
    monkeypatch.setattr(exports, "PEERS", tmp_path / "peers")
    monkeypatch.setattr(exports, "GGUF_EXPORT", converter)
    return written(tmp_path / "head")


def calls_after(head: Path, target: Path | None) -> list[str]:
    gguf_file(str(head), "f32", target=target, sources=head.parent)
    return (head.parent / "calls").read_text().splitlines()


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("of", ["head", "target"])
def test_an_export_is_made_again_when_the_head_or_its_target_changes(head: Path, of: str, file: str) -> None:
    target = written(head.parent / "target")
    assert len(calls_after(head, target)) == 1
    assert len(calls_after(head, target)) == 1
    os.utime(head.parent / of / file, (1, 1))
    assert len(calls_after(head, target)) == 2


def test_another_target_makes_another_export(head: Path) -> None:
    one, two = (written(head.parent / name) for name in ("one", "two"))
    for count, target in enumerate((one, two, None), 1):
        calls = calls_after(head, target)
        assert len(calls) == count
        assert calls[-1].endswith("f32" if target is None else f"f32 {target}")
