"""The page in a browser, over `specserve serve` with the demo model, n-gram drafts and a draft head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import Browser, browser, needs_chromium

from server_process import ServerProcess, serve_command, stopped_well

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = needs_chromium
PROMPT = "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n        self.assertEqual(add(2, 2), 4)\n"
FLAGS = (
    *("--threads", "1", "--plugin", "ngram", "--plugin", "eagle", "--set", "eagle.model=demo-eagle3"),
    *("--plugin", "grammar", "--no-plugin", "adaptive"),
)
COLOURED = """
return [...document.querySelectorAll(".tokens")].map(
  (tokens) => [...tokens.querySelectorAll(".token")].map((token) => token.className));
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A silent console, and no request to anywhere else."""
    log = tmp_path_factory.mktemp("page") / "log"
    with stopped_well(ServerProcess(serve_command("demo", *FLAGS), log)) as server, browser() as opened:
        opened.open(f"{server.url}/")
        opened.wait(lambda: "drafts by ngram, eagle" in opened.text("#served"))
        yield opened
        assert opened.console() == []
        assert not [url for url in opened.requested() if not url.startswith((server.url, "data:", "about:"))]


def test_each_token_has_the_colour_of_the_drafter_that_the_engine_names(page: Browser) -> None:
    page.one("#tab-completion").click()
    page.fill("#completion-prompt", PROMPT)
    page.fill("[name=max_tokens]", "60")
    page.one("#completion-form .primary").click()
    page.wait(lambda: page.text("#completion .foot"))
    (classes,) = [found for found in page.script(COLOURED) if found]
    assert len(classes) == 60
    assert {"token own", "token d0"} <= set(classes)  # d0 is ngram: the server names it first
    assert page.text("#completion .foot").startswith("60 tokens, ")
    assert " of " in page.all("#measured .legend li")[0].text


@pytest.mark.parametrize("temperature", ["0", "1"])
def test_with_drafts_and_without_the_texts_are_equal(page: Browser, temperature: str) -> None:
    page.one("#tab-race").click()
    page.fill("#race-prompt", PROMPT)
    page.fill("[name=temperature]", temperature)
    page.script("document.querySelector('[name=more]').value = arguments[0]", '{"ignore_eos": true}')
    page.one("#race-form .primary").click()
    page.wait(lambda: page.text("#race-verdict") and page.text("#race-form .primary") == "Race")
    assert page.text("#race-verdict").startswith("The same text: all 60 tokens are equal. With drafts it came ")
    drafted, plain = page.script(COLOURED)[-2:]
    assert {"token d0", "token d1"} & set(drafted)
    assert set(plain) == {"token own"}


def test_a_field_that_the_server_refuses_is_told_in_its_words(page: Browser) -> None:
    page.one("#tab-completion").click()
    page.fill("[name=temperature]", "-1")
    page.one("#completion-form .primary").click()
    assert "temperature" in page.one("#completion .error").text
    page.fill("[name=temperature]", "0")
    assert ["status of 400" in line for line in page.console()] == [True]


def test_every_pair_of_installed_plugins_has_its_verdict(page: Browser) -> None:
    page.one("#tab-plugins").click()
    page.one(".cell.conflict").click()
    assert "cannot run with" in page.text(".matrix .reason")
    names = [th.text for th in page.all(".matrix tbody th")]
    assert {"ngram", "eagle", "grammar"} <= set(names)
    assert len(page.all(".matrix .cell")) == len(names) * (len(names) - 1)
