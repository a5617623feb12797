"""What an author adds to a new plugin: that it works with drafts of others, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

COMPAT = '''"""Why the plugin works with features of others. Imports nothing heavy: `specserve plugins` reads it."""

from specserve.api import Compatible

DRAFTS = Compatible("drafts are compared and the one that promises most is verified")
'''


def state_compatibility(plugin: Path, name: str) -> None:
    """In its pyproject.toml and its compat.py."""
    project = plugin / "pyproject.toml"
    header = f'[project.entry-points."specserve.compatible.{name}"]\n'
    before, found, after = project.read_text().partition(header)
    assert found
    lines = [f'"draft.{kind}" = "{name}_plugin.compat:DRAFTS"\n' for kind in ("chain", "tree")]
    project.write_text("".join([before, header, *lines, after]))
    (plugin / "src" / f"{name}_plugin" / "compat.py").write_text(COMPAT)
