"""The distributions that `make wheels` builds, and the files in dist/ that each of them becomes.

Runs with any Python from 3.11 on, without third-party packages.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
WORK = ROOT / "build" / "wheels"
PYTHON = f"py{sys.version_info.major}{sys.version_info.minor}"
IGNORED = {"__pycache__", "build"}


class Distribution(NamedTuple):
    folder: Path

    @property
    def project(self) -> dict[str, str]:
        table: dict[str, str] = tomllib.loads((self.folder / "pyproject.toml").read_text())["project"]
        return table

    @property
    def name(self) -> str:
        return self.project["name"]

    @property
    def is_native(self) -> bool:
        return (self.folder / "CMakeLists.txt").is_file()

    @property
    def tag(self) -> str:
        """Of the wheel that this Python builds. Native wheels use the stable ABI of 3.12, from 3.12 on."""
        if not self.is_native:
            return "py3-none"
        version = f"cp3{sys.version_info.minor}"
        return "cp312-abi3" if sys.version_info >= (3, 12) else f"{version}-{version}"

    def find_built(self) -> list[Path]:
        """The sdist and the wheel in dist/, as far as they are there."""
        stem = f"{self.name.replace('-', '_')}-{self.project['version']}"
        return [*DIST.glob(f"{stem}.tar.gz"), *DIST.glob(f"{stem}-{self.tag}-*.whl")]

    def is_fresh(self) -> bool:
        built = self.find_built()
        newest = max(path.stat().st_mtime for path in self.sources())
        return len(built) == 2 and all(path.stat().st_mtime > newest for path in built)

    def sources(self) -> Iterator[Path]:
        """With the folders: a file that is moved or deleted changes the time of its folder."""
        yield self.folder
        yield from (path for path in self.folder.rglob("*") if IGNORED.isdisjoint(path.relative_to(ROOT).parts))


PUBLISHED = tuple(
    Distribution(ROOT / folder)
    for folder in (
        "checks",
        "core",
        "draft_models",
        "page",
        "server",
        "workbench",
        "bench",
        "demo",
        "plugins/adaptive",
        "plugins/cpu",
        "plugins/cuda",
        "plugins/eagle",
        "plugins/gguf",
        "plugins/grammar",
        "plugins/graphs",
        "plugins/hybrid_attn",
        "plugins/kv_events",
        "plugins/lora",
        "plugins/ngram",
        "plugins/quantised",
        "deploy/ray",
        "plugins/tensor_parallel",
        "plugins/transformers",
    )
)
"""Not `template/`, which is an example."""
