"""Pages are held against the repository: links, make targets, modules and files that they name."""

from __future__ import annotations

import pkgutil
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from markdown_links import broken_links, what_misses
from specserve_server.cli import build_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/plugins/*.md",
        "*/README.md",
        "plugins/*/README.md",
        "deploy/*/README.md",
    )
    for page in ROOT.glob(pattern)
    if page.parent.name != "build"
)
FOLDERS = "bench|benchmarks|checks|core|demo|deploy|docs|draft_models|plugins|server|template|tests|tools|workbench"


def found(page: Path, pattern: str) -> set[str]:
    return set(re.findall(pattern, page.read_text()))


each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@each_page
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page):
    assert broken_links(page) == []


def test_every_page_and_heading_that_code_names_exists():
    assert [each for each in named_in_code() if what_misses(ROOT / each.page, each.anchor)] == []


@each_page
def test_every_target_exists(page):
    targets = found(ROOT / "Makefile", r"(?m)^([\w-]+):")
    assert found(page, r"`make ([a-z][\w-]+)") | found(page, r"(?m)^make ([a-z][\w-]+)") <= targets


@each_page
def test_every_file_that_is_named_exists(page):
    names = found(page, rf"`((?:{FOLDERS})/[\w./*-]+)`")
    assert [name for name in names if not re.search("NAME|DATE", name) and not list(ROOT.glob(name.rstrip("/")))] == []


@each_page
def test_every_module_that_is_named_exists(page):
    names = found(page, r"(?:`|from )(specserve(?:_\w+)?\.[\w.]+\w)")
    assert [name for name in names if not is_python(name) and not is_group(name)] == []


@each_page
def test_every_command_that_is_shown_is_understood(page):
    for command in sorted(found(page, r"(?m)^specserve ((?:serve|generate|plugins|doctor|bench) [^\n\\]*)$")):
        words = shlex.split(command, comments=True)
        try:
            build_parser().parse_args(words)
        except SystemExit as error:
            pytest.fail(f"specserve {command}: {error}")


class NamedPage(NamedTuple):
    source: Path
    page: str
    anchor: str


def named_in_code() -> Iterator[NamedPage]:
    """The pages that messages and docstrings of the products name."""
    for source in (path for pattern in ("*/src", "plugins/*/src", "deploy/*/src") for path in ROOT.glob(pattern)):
        for module in sorted(source.rglob("*.py")):
            for page, anchor in re.findall(r"(docs/[\w/]+\.md)(?:#([\w-]+))?", module.read_text()):
                yield NamedPage(module, page, anchor)


def is_python(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def is_group(name: str) -> bool:
    """A group of entry points, with the plugin's name or version where it has one."""
    of_plugins = r"plugins(\.v\d+)?|(provides|compatible|conflicts)\.\w+"
    return re.fullmatch(rf"specserve\.(commands|main|models|page|{of_plugins})", name) is not None
