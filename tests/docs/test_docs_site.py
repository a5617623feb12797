"""The site's pages and their groups, held against docs/README.md; what a page may fetch. Nothing is built here."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import docs_site
from doc_pages import INDEX, ROOT, Page, groups, reachable
from site_assets import external_assets

GROUPS = groups((ROOT / INDEX).read_text())


def test_pages_are_grouped_by_their_readers():
    assert list(GROUPS) == ["Use", "Operate", "Write a plugin", "Understand", "Contribute"]


def test_every_page_of_the_docs_is_in_exactly_one_group():
    grouped = [page.path for pages in GROUPS.values() for page in pages]
    assert len(set(grouped)) == len(grouped)
    docs = {path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")} - {INDEX}
    assert {path for path in grouped if path.parts[0] == "docs"} == docs


def test_a_group_has_the_links_that_begin_rows_and_no_others():
    index = "[a](a.md)\n## One\n\n| page | holds |\n| [A](a.md) | and [b](b.md) |\n\n## Two\n\n| [C](../C.md) | |\n"
    assert groups(index) == {"One": [Page("A", Path("docs/a.md"))], "Two": [Page("C", Path("C.md"))]}


@pytest.fixture
def laid_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, place in {"PAGES": "site_pages", "CONFIG": "zensical.toml"}.items():
        monkeypatch.setattr(docs_site, name, tmp_path / place)
    docs_site.lay_out()
    return tmp_path


def test_the_navigation_has_the_pages_of_the_index_in_its_groups(laid_out):
    first, *others = tomllib.loads((laid_out / "zensical.toml").read_text())["project"]["nav"]
    assert first == {"Start": [{"specserve": "README.md"}, {"All pages": "docs/README.md"}]}
    assert others == [{title: [{page.title: str(page.path)} for page in pages]} for title, pages in GROUPS.items()]


def test_pages_and_the_files_that_they_lead_to_lie_as_in_the_repository(laid_out):
    pages = laid_out / "site_pages"
    for name in (
        "README.md",
        "docs/plugins/contract.md",
        "docs/images/step.svg",
        "deploy/routers/README.md",
        "LICENSE",
    ):
        assert (pages / name).read_bytes() == (ROOT / name).read_bytes()
    assert not (pages / "tools").exists()


def test_what_the_configuration_names_is_laid_out(laid_out):
    project = tomllib.loads((laid_out / "zensical.toml").read_text())["project"]
    files = [*project["extra_css"], *(each["path"] for each in project["extra"]["polyfills"]), project["theme"]["logo"]]
    assert all((laid_out / "site_pages" / name).is_file() for name in files)
    assert project["theme"]["font"] is False


def test_files_are_reached_through_pages(tmp_path, monkeypatch):
    monkeypatch.setattr("doc_pages.ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("[b](../b.md#x) [gone](gone.md) ![c](c.svg)")
    (tmp_path / "b.md").write_text("[d](d.txt) [folder](docs)")
    for name in ("docs/c.svg", "d.txt", "docs/unlinked.md"):
        (tmp_path / name).write_text("")
    assert reachable([Path("docs/a.md")]) == {Path(name) for name in ("docs/a.md", "b.md", "docs/c.svg", "d.txt")}


EXTERNAL = {
    "script": '<script src="https://a.example/x.js"></script>',
    "style sheet": '<link rel="stylesheet" href="//a.example/x.css">',
    "picture": '<img src="a.png" srcset="https://a.example/x.png">',
    "font of a style": "<style>@font-face { src: url('https://a.example/x.woff2') }</style>",
    "import of a style": "<style>@import 'https://a.example/x.css';</style>",
    "background": '<p style="background: url(https://a.example/x.png)">',
}


@pytest.mark.parametrize("kind", EXTERNAL)
def test_an_asset_of_another_host_is_found(tmp_path, kind):
    (tmp_path / "page.html").write_text(EXTERNAL[kind])
    (found,) = external_assets(tmp_path)
    assert found.startswith("page.html: ")
    assert "a.example/x." in found


def test_links_of_readers_and_own_assets_are_no_external_ones(tmp_path):
    own = (
        '<script src="./x.js"></script><img src="data:image/png;base64,AA"><style>p { background: url(x.png) }</style>'
    )
    (tmp_path / "page.html").write_text(
        f'<a href="https://a.example">a</a><link rel="canonical" href="https://a.example">{own}'
    )
    (tmp_path / "x.css").write_text("@import 'y.css'; p { background: url(\"data:image/svg+xml,http://www.w3.org\") }")
    assert list(external_assets(tmp_path)) == []


def test_assets_of_style_sheets_and_pictures_are_looked_at(tmp_path):
    (tmp_path / "x.css").write_text("p { background: url(https://a.example/x.png) }")
    (tmp_path / "x.svg").write_text(
        "<style>@import url(https://a.example/x.css)</style><image href='//a.example/x.png'/>"
    )
    assert len(list(external_assets(tmp_path))) == 3
