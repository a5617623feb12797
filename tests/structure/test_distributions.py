"""What each distribution says of itself: version, licence, the specserve that it needs, entry points."""

from __future__ import annotations

import pkgutil
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

import specserve

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(
    path.parent for pattern in ("*", "plugins/*", "deploy/*") for path in ROOT.glob(f"{pattern}/pyproject.toml")
)
PUBLISHED = [folder for folder in FOLDERS if folder != ROOT / "template"]
PLUGINS = [folder for folder in FOLDERS if folder.parent == ROOT / "plugins" or folder == ROOT / "template"]


def project(folder: Path) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return table


def test_wheels_are_made_of_every_distribution_but_the_template() -> None:
    made = runpy.run_path(str(ROOT / "tools" / "distributions.py"))["PUBLISHED"]
    assert sorted(distribution.folder for distribution in made) == PUBLISHED


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_all_have_one_version_and_need_the_same_pythons(folder: Path) -> None:
    assert project(folder)["version"] == specserve.__version__
    assert project(folder)["requires-python"] == ">=3.11"


def needs(folder: Path, *names: str) -> bool:
    """Whether these are the distributions of ours that it needs, each below the next minor version."""
    major, minor, _ = specserve.__version__.split(".")
    bounds = [f"{name}>={major}.{minor},<{major}.{int(minor) + 1}" for name in names]
    return [need for need in project(folder).get("dependencies", ()) if need.startswith("specserve")] == bounds


LIBRARIES = {"cuda": ("specserve-plugin-graphs",), "eagle": ("specserve-draft-models",)}
"""What plugins need besides."""


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_a_plugin_needs_specserve_below_the_next_minor_version(folder: Path) -> None:
    assert needs(folder, "specserve", *LIBRARIES.get(folder.name, ()))


def test_the_server_needs_the_core_the_page_and_the_workbench_and_they_need_no_server() -> None:
    assert needs(ROOT / "server", "specserve-core", "specserve-page", "specserve-workbench")
    assert needs(ROOT / "page")
    assert needs(ROOT / "workbench", "specserve-core")
    assert needs(ROOT / "draft_models", "specserve-core")
    assert needs(ROOT / "core", "specserve-checks")
    assert needs(ROOT / "checks")
    assert needs(ROOT / "demo")
    assert needs(ROOT / "deploy" / "ray", "specserve")
    assert needs(ROOT / "bench", "specserve")


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_what_is_published_carries_the_licence_and_a_page(folder: Path) -> None:
    assert (project(folder)["license"], project(folder)["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert not (folder / "LICENSE").is_symlink()  # an sdist would hold a link that leads out of it
    assert (folder / project(folder)["readme"]).read_text().startswith(f"# {project(folder)['name']}\n")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_entry_point_leads_to_something(folder: Path) -> None:
    groups = {"console_scripts": project(folder).get("scripts", {})} | project(folder).get("entry-points", {})
    found = [(group, name, pkgutil.resolve_name(value)) for group in groups for name, value in groups[group].items()]
    assert bool(found) == (folder.name not in {"checks", "core", "draft_models"}), "libraries have none"
