"""What the page says is proven of two plugins: it is in the package, and it is what docs/compatibility.json has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from browser import needs_chromium
from node import call, needs_node

import page_proofs
from specserve import __version__

if TYPE_CHECKING:
    from browser import Browser
    from fake_server import Canned

TOLD = json.loads(page_proofs.WRITTEN.read_text(encoding="utf-8"))


def proof_of(left: str, right: str) -> dict[str, str]:
    (found,) = [one for one in TOLD["proofs"] if one["plugins"] == [left, right]]
    return found  # type: ignore[no-any-return]


def test_the_pages_proofs_are_those_of_the_published_matrix() -> None:
    assert page_proofs.WRITTEN.read_text(encoding="utf-8") == page_proofs.text(), "make pages"
    assert TOLD["version"] == __version__
    proven = proven_in((page_proofs.ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8"))
    assert {tuple(one["plugins"]) for one in TOLD["proofs"]} == {pair for pair in proven if pair[0] < pair[1]}
    assert len(TOLD["proofs"]) > 50


def proven_in(matrix: str) -> set[tuple[str, str]]:
    """By its table."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in matrix.splitlines() if line[:1] == "|"]
    names = rows[0][1:]
    plugins = [row for row in rows if row[0] in names]
    return {(row[0], name) for row in plugins for name, word in zip(names, row[1:], strict=True) if word == "proven"}


@needs_chromium
def test_a_pair_that_is_proven_says_what_was_run(page: Browser, canned: Canned) -> None:
    canned.version = __version__
    page.one("#tab-plugins").click()
    cells = [
        page.one('.cell[aria-label="ngram with eagle: proven"]'),
        page.one('[aria-label="eagle with ngram: proven"]'),
    ]
    assert [cell.text for cell in cells] == ["✓✓", "✓✓"]
    cells[0].click()
    proof = proof_of("eagle", "ngram")
    by = f"Proven by the conformance kit with version {__version__}, test “{proof['test']}”: {proof['saw']}."
    assert page.text(".matrix .reason") == f"ngram works with eagle: both may draft. {by}"
    page.one(".cell.conflict").click()
    assert proof_of("lora", "ngram")
    assert "Proven" not in page.text(".matrix .reason")  # this server refuses them together


@needs_chromium
def test_of_plugins_of_another_version_nothing_is_proven(page: Browser, canned: Canned) -> None:
    page.one("#tab-plugins").click()
    page.one(".cell.compatible").click()
    assert page.text(".matrix .reason") == "ngram works with eagle: both may draft."
    assert not page.all(".cell.proven")


@needs_node
def test_a_proof_holds_for_two_plugins_of_the_tested_version_either_way_round() -> None:
    told = {"version": "2", "proofs": [{"plugins": ["a", "b"], "test": "a: with b", "saw": "9 of 9"}]}
    body = "const proofs = new m.Proofs(a[0]); return a[1].map(([left, right]) => proofs.of(left, right)?.saw ?? null);"
    plugins = {name: {"name": name, "version": "2"} for name in "abc"}
    old = {"name": "b", "version": "1"}
    pairs = [("a", "b"), ("b", "a"), ("a", "c")]
    given = [[plugins[left], plugins[right]] for left, right in pairs] + [[plugins["a"], old]]
    assert call("proofs.js", body, told, given) == ["9 of 9", "9 of 9", None, None]
