"""The files that pages of docs/plugins show, installed where plugins are found."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from fake_site import write_distribution
from type_checks import check_types

PAGES = Path(__file__).parents[2] / "docs" / "plugins"


def files_of(page: str) -> dict[str, str]:
    """Code by path. The path is the first line of a block, as a comment."""
    text = (PAGES / page).read_text()
    blocks = re.findall(r"^```(?:python|toml)\n# ([\w/.]+)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return dict(blocks)


def features_of(page: str) -> dict[str, str]:
    """What the plugins of a page provide, by path."""
    text = (PAGES / page).read_text()
    return dict(re.findall(r"^# ([\w/.]+), provides ([\w.-]+)$", text, re.MULTILINE))


def install_page(site: Path, page: str) -> dict[str, str]:
    """Its package and its entry points; returns the files."""
    files = files_of(page)
    for path, text in files.items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        if path.endswith(".py"):
            (target.parent / "__init__.py").touch()
    points = tomllib.loads(files["pyproject.toml"])["project"]["entry-points"]
    write_distribution(site, page.removesuffix(".md").replace("_", "-"), points)
    return files


def check_page_types(page: str, folder: Path) -> None:
    """Of a page's package, written into `folder`."""
    sources = [path for path in install_page(folder, page) if path.endswith(".py")]
    check_types(sources, folder)
