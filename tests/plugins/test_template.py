"""The plugin under template/ is the one that `specserve plugins new` writes, and what its author states."""

from __future__ import annotations

from pathlib import Path

from stated_plugin import state_compatibility

from specserve_workbench.scaffold.write_plugin import write_plugin

TEMPLATE = Path(__file__).parents[2] / "template"
BUILT = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


def files_of(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file() and BUILT.isdisjoint(path.parts)]
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def test_the_template_is_a_new_drafter(tmp_path: Path) -> None:
    write_plugin("repeat", "drafter", tmp_path)
    state_compatibility(tmp_path / "repeat-plugin", "repeat")
    assert files_of(TEMPLATE) == files_of(tmp_path / "repeat-plugin"), "write it anew with specserve plugins new"
