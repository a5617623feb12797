"""The built site in the system's chromium, read from files: search, themes, phones. Skips without the group `docs`."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from browser import PHONE, Browser, browser, needs_chromium

from doc_pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    needs_chromium,
    pytest.mark.skipif(find_spec("zensical") is None, reason="zensical is not installed; `make docs` does that"),
]
SITE = (ROOT / "build" / "site").as_uri()
FOUND = "return [...document.activeElement.shadowRoot.querySelectorAll('a')].map((link) => link.href)"
"""The search's links; it lives in a root of its own."""
PAGES = ("index", "docs/index", "docs/benchmarks", "docs/server", "docs/plugins/reference", "CHANGELOG")
SCROLLS = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
GROUND = "return getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    command = [sys.executable, str(ROOT / "tools" / "docs_site.py"), "build"]
    built = subprocess.run(command, check=False, text=True, capture_output=True)
    assert built.returncode == 0, built.stdout + built.stderr
    with browser() as opened:
        yield opened


def test_the_search_finds_a_heading_without_a_server(page: Browser) -> None:
    page.open(f"{SITE}/docs/server.html")
    page.one(".md-search__button").click()
    page.wait(lambda: page.script("return document.activeElement.shadowRoot != null"))
    page.script("return document.activeElement").send_keys("bit rule")
    first = page.wait(lambda: next(iter(page.script(FOUND)), None))
    assert first.partition("?")[0] == f"{SITE}/docs/architecture.html"
    assert first.endswith("#the-bit-rule")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fetches_nothing_from_a_host_and_has_no_errors(page: Browser, name: str) -> None:
    page.open(f"{SITE}/{name}.html")
    page.wait(lambda: page.script("return document.readyState == 'complete'"))
    assert [url for url in page.requested() if not url.startswith(("file:", "data:"))] == []
    assert page.console() == []


@pytest.mark.parametrize("name", PAGES)
def test_only_tables_and_code_scroll_sideways_on_a_phone(page: Browser, name: str) -> None:
    page.open(f"{SITE}/{name}.html", PHONE)
    page.wait(lambda: page.script("return document.readyState == 'complete'"))
    assert not page.script(SCROLLS)


def test_the_theme_is_the_readers_until_another_is_chosen(page: Browser) -> None:
    grounds = []
    for theme in ("light", "dark"):
        page.open(f"{SITE}/docs/index.html", theme=theme)
        grounds.append(page.script(GROUND))
    assert grounds[0] != grounds[1]
    page.one("label[title=Light]").click()
    page.wait(lambda: page.script(GROUND) == grounds[0])
