"""The page under the prefix of a reverse proxy that removes it, over canned answers."""

from __future__ import annotations

from browser import Browser, needs_chromium
from fake_server import Canned, fake_server, served
from prefix_proxy import prefix_proxy
from using_the_page import complete, race

pytestmark = needs_chromium


def test_under_a_prefix_that_a_proxy_removes_everything_is_asked_there(chromium: Browser, canned: Canned) -> None:
    with fake_server(canned) as behind, served(prefix_proxy("/llm/a", behind)) as root:
        url = f"{root}llm/a/"
        chromium.open(url)
        chromium.wait(lambda: "toy" in chromium.text("#served"))
        complete(chromium)
        assert chromium.text("#completion .tokens") == "The cat sat on it."
        assert race(chromium).startswith("The same text: all 6 tokens are equal.")
        chromium.one("#tab-plugins").click()
        chromium.one(".cell.conflict")
        chromium.one("#tab-completion").click()
        next(one for one in chromium.all("#completion .foot button") if one.text == "curl").click()
        assert f"{url}v1/completions" in chromium.one("#snippet-text").get_attribute("value")
        assert chromium.console() == []
        asked = [one for one in chromium.requested() if not one.startswith(("data:", "about:"))]
        assert {f"{url}v1/plugins/pairs", f"{url}page/main.js", f"{url}v1/completions"} <= set(asked)
        assert [one for one in asked if not one.startswith(url)] == []
