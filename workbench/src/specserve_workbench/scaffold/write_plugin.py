"""Writes a distribution with one plugin: hook implementations, declarations, tests, and the files around them.

Owns the names that follow from the plugin's, and which files a kind has. The texts are in `files`, with `$name` and the
like where a name stands. Imports no torch.
"""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, NamedTuple

from specserve import __version__
from specserve.errors import ConfigError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path


class Build(NamedTuple):
    """How pyproject.toml says that the package is built, and what else a README says of it."""

    requires: str
    backend: str
    table: str
    packages: str
    readme: str = ""


PURE = Build('"hatchling>=1.27"', "hatchling.build", "tool.hatch.build.targets.wheel", "packages")


class Kind(NamedTuple):
    """`declares`: the groups of entry points of its features and of what it works with, as in pyproject.toml."""

    feature: str
    sentence: str
    declares: tuple[str, ...]
    build: Build = PURE


DRAFTS = ('#   "draft.chain" = "$package.compat:DRAFTS"', '#   "draft.tree" = "$package.compat:DRAFTS"')
CXX = Build(
    '"scikit-build-core>=0.11", "nanobind>=2.9"',
    "scikit_build_core.build",
    "tool.scikit-build",
    "wheel.packages",
    readme="""
The C++ in `native/` becomes the module `$package._native`, through nanobind; `src/$package/_native.pyi` has its
types. `pip install` builds it, which takes a C++ compiler and Python's headers; install again after a change there.
""",
)
KINDS = {
    "drafter": Kind("draft.chain", "drafts the last token again", DRAFTS),
    "native": Kind("draft.chain", "drafts, in C++, what followed the last two tokens before", DRAFTS, CXX),
    "processor": Kind("logits.processor", "forbids tokens", DRAFTS),
    "planner": Kind("planner.adaptive", "verifies as many draft tokens of each request as an option says", DRAFTS),
    "attention": Kind("attention.backend", "attention row by row, in plain torch", DRAFTS),
    "family": Kind(
        "model.family",
        "serves a family of models that divide their logits",
        ("# none: a family works with every plugin unless one of them declares a conflict.",),
    ),
    "routes": Kind("server.routes", "tells over HTTP what the engine is doing", DRAFTS),
}
COMMON = "common"


def write_plugin(name: str, kind: str, parent: Path) -> list[Path]:
    """The files of a plugin called `name`, in a new folder of `parent`. Raises ConfigError for a name that cannot be
    one and for a folder that exists."""
    check_name(name)
    words = words_for(name, KINDS[kind])
    folder = parent / words["dist"]
    if folder.exists():
        raise ConfigError(f"{folder} exists already. Choose another name, or another folder with --into.")
    written = []
    for source in (COMMON, kind):
        for path, text in texts(files("specserve_workbench.scaffold") / "files" / source, ""):
            target = folder / Template(path.removesuffix(".tmpl")).substitute(words)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(Template(text).substitute(words), encoding="utf-8")
            written.append(target)
    return sorted(written)


def check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name) or name == "builtin":
        raise ConfigError(
            f"a plugin's name is a Python identifier in lower case, such as my_drafter, and neither a keyword nor "
            f"'builtin'; got {name!r}."
        )


def words_for(name: str, kind: Kind) -> dict[str, str]:
    """What stands for `$name` and the like in the texts."""
    major, minor, *_ = __version__.split(".")
    package = f"{name}_plugin"
    words = {
        "name": name,
        "package": package,
        "dist": f"{name.replace('_', '-')}-plugin",
        "feature": kind.feature,
        "architecture": f"{name.replace('_', ' ').title().replace(' ', '')}ForCausalLM",
        "sentence": kind.sentence,
        "versions": f">={major}.{minor},<{major}.{int(minor) + 1}",
    }
    composed = {
        "build_requires": kind.build.requires,
        "build_backend": kind.build.backend,
        "build_table": kind.build.table,
        "build_packages": kind.build.packages,
        "build_readme": kind.build.readme,
        "compatible": "\n".join(kind.declares),
    }
    return words | {word: Template(text).substitute(words) for word, text in composed.items()}


def texts(folder: Traversable, path: str) -> list[tuple[str, str]]:
    """(path below the folder, text) of every file."""
    found: list[tuple[str, str]] = []
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        below = f"{path}{entry.name}"
        found += texts(entry, f"{below}/") if entry.is_dir() else [(below, entry.read_text(encoding="utf-8"))]
    return found
