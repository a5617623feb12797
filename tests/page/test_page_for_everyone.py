"""The page for keyboards, screen readers, fingers and narrow screens, over canned answers."""

from __future__ import annotations

import pytest
from axe import axe_findings
from browser import PHONE, Browser, needs_chromium
from fake_server import Canned, fake_server
from using_the_page import complete, race

pytestmark = needs_chromium


def test_the_keyboard_goes_from_token_to_token_and_each_is_read_out(page: Browser) -> None:
    complete(page)
    page.script("document.querySelector('#completion .tokens').focus()")
    for key in ("\ue014", "\ue014"):  # arrow right
        page.press(key)
    assert page.text("#announcer") == "“ cat”, guessed by ngram; step 2, 1 draft tokens rejected"
    assert page.one("#inspector").is_displayed()
    page.press("\ue00c")  # escape
    assert not page.all("#inspector")[0].is_displayed()
    page.script("document.getElementById('tab-completion').focus()")
    page.press("\ue014")
    assert page.one("#race").is_displayed()
    assert page.script("return document.activeElement.id") == "tab-race"


@pytest.mark.parametrize("view", ["chat", "completion", "race", "plugins"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(chromium: Browser, canned: Canned, view: str, theme: str) -> None:
    with fake_server(canned) as url:
        chromium.open(f"{url}#{view}", PHONE if theme == "dark" else (1360, 860), theme)
        chromium.wait(lambda: "toy" in chromium.text("#served"))
        if view == "race":
            race(chromium)
        elif view == "completion":
            complete(chromium)
            chromium.point_at(chromium.all("#completion .token")[1])
        elif view == "plugins":
            chromium.one(".cell.conflict")
        assert axe_findings(chromium) == []


def test_a_finger_on_a_token_shows_its_card_until_it_touches_elsewhere(chromium: Browser, canned: Canned) -> None:
    def touch(x: float, y: float) -> None:
        points = [{"x": x, "y": y}]
        chromium.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": points})
        chromium.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    with fake_server(canned) as url:
        chromium.open(url, PHONE)
        complete(chromium)
        chromium.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
        box = "const box = arguments[0].getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]"
        touch(*chromium.script(box, chromium.all("#completion .token")[1]))
        assert "guessed by ngram" in chromium.one("#inspector").text
        touch(*chromium.script(box, chromium.all("#completion-prompt")[0]))
        chromium.wait(lambda: not chromium.all("#inspector")[0].is_displayed())
        chromium.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_a_phone_has_no_need_to_scroll_sideways(chromium: Browser, canned: Canned) -> None:
    with fake_server(canned) as url:
        for view in ("chat", "completion", "race", "plugins"):
            chromium.open(f"{url}#{view}", PHONE)
            chromium.wait(lambda: "toy" in chromium.text("#served"))
            width = chromium.script("return document.documentElement.scrollWidth")
            assert width <= PHONE[0], view
