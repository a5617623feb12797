"""The reader of links and headings itself: what a code host would follow, and what it would not."""

from __future__ import annotations

import pytest

from markdown_links import anchors, broken_links, links, slug_of

HEADINGS = {
    "Speculation of a request": "speculation-of-a-request",
    "The engine's process": "the-engines-process",
    "GGUF files: the plugin `gguf`": "gguf-files-the-plugin-gguf",
    "Weights of 4, 5 and 6 bits": "weights-of-4-5-and-6-bits",
    "`make_cache_observer(engine)`": "make_cache_observerengine",
    "One - two": "one---two",
    "Chains & trees": "chains--trees",
    "See [plugins](plugins.md)": "see-plugins",
    "Größe": "größe",
}


@pytest.mark.parametrize("heading", HEADINGS)
def test_a_heading_has_the_anchor_that_github_gives_it(heading):
    assert slug_of(heading) == HEADINGS[heading]


def test_a_repeated_heading_is_numbered():
    assert anchors("# A\n## B\n## B\n## B\n") == {"a", "b", "b-1", "b-2"}


def test_comments_of_fenced_code_are_no_headings():
    assert anchors("# A\n```sh\n# not one\n```\n## B\n") == {"a", "b"}


def test_links_pictures_and_elements_are_found_and_code_is_not():
    text = """[a](a.md#b) ![p](p.svg) [c](#d) [e](<f.md> "title") [far](https://example.org/x)
<picture><source srcset="dark.svg"><img src="light.svg"></picture> `[no](no.md)` ``[no](`no.md)``
```
[no](no.md)
```
"""
    assert [tuple(link) for link in links(text)] == [
        *(("a.md", "b"), ("p.svg", ""), ("", "d"), ("f.md", ""), ("dark.svg", ""), ("light.svg", ""))
    ]


def test_a_broken_link_is_told_with_what_misses(tmp_path):
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text('# There\n<a id="here"></a>\n')
    page.write_text(
        "# Top\n[1](other.md#there) [2](other.md#here) [3](#top) [4](other.md#gone) [5](gone.md) [6](#gone)\n"
    )
    assert broken_links(page) == ["other.md#gone: no such heading", "gone.md#: no such file", "#gone: no such heading"]
