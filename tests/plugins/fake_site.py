"""Writes fake distributions: a `.dist-info` directory and a package, in a directory on sys.path."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from specserve.declare import PLUGIN_API
from specserve.hookspecs import hookimpl
from specserve.plugins.entry_points import plugin_group
from specserve.plugins.host import PluginHost

if TYPE_CHECKING:
    from pathlib import Path

Install = Callable[..., None]
Start = Callable[..., PluginHost]

HOOKS = """
from specserve.hookspecs import hookimpl

@hookimpl
def make_draft_planner():
    return "a planner of " + __name__
"""
COMPAT = """
from specserve.declare import Compatible, Conflict, Provides
WORKS = Compatible("it works.")
FAILS = Conflict("both want the same thing.")
"""


class FakeBuiltin:
    """Stands where `specserve.builtin` does."""

    @hookimpl
    def make_kernels(self) -> str:
        return "torch kernels"


def write_plugin(
    site: Path,
    name: str,
    *,
    provides: str | Mapping[str, str] = "draft.chain",
    compatible: Mapping[str, str] | None = None,
    conflicts: Mapping[str, str] | None = None,
    plugin: str = HOOKS,
    compat: str = COMPAT,
    entry: str = "plugin",
    groups: Mapping[str, Mapping[str, str]] | None = None,
    dist: str = "",
    api: int = PLUGIN_API,
) -> None:
    package = f"fake_{name}"
    if isinstance(provides, str):
        provides = dict.fromkeys(provides.split(), "")
    sections: dict[str, Mapping[str, str]] = {
        plugin_group(api): {name: f"{package}.{entry}"},
        f"specserve.provides.{name}": {t: f"{package}.compat{v and ':'}{v}" for t, v in provides.items()},
        f"specserve.compatible.{name}": {t: f"{package}.compat:{v}" for t, v in (compatible or {}).items()},
        f"specserve.conflicts.{name}": {t: f"{package}.compat:{v}" for t, v in (conflicts or {}).items()},
        **(groups or {}),
    }
    write_package(site / package, plugin, compat)
    write_distribution(site, dist or f"dist-{name}", sections)


def write_package(folder: Path, plugin: str, compat: str) -> None:
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "plugin.py").write_text(plugin)
    (folder / "compat.py").write_text(compat)
    importlib.invalidate_caches()


def write_distribution(site: Path, dist: str, sections: Mapping[str, Mapping[str, str]]) -> None:
    info = site / f"{dist.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
    lines = [f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in points.items()) for group, points in sections.items()]
    (info / "entry_points.txt").write_text("\n\n".join(lines))
    importlib.invalidate_caches()
