"""Makes a plugin that is only a folder on the path an installed one: what its pyproject.toml declares is written where
Python looks for installed distributions. The GPU machine may have no network to install with."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def declare(folder: Path, site: Path) -> None:
    """`folder` has the pyproject.toml; `site` is to be on the path of those who look for plugins."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{token} = {value}" for token, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
