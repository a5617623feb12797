"""What comes while no frame is painted, as in a tab that nobody sees, is shown in slices. Tests call the frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from browser import needs_chromium
from fake_server import STEPS, Canned, step, token
from using_the_page import complete, race

if TYPE_CHECKING:
    from browser import Browser

pytestmark = needs_chromium
NUM_STEPS = 3000
SLICE = 1000
"""Of growing.js."""
LARGEST_STEP = 7
"""Nodes that the page makes of a step of STEPS: a column with its background and four cells is the largest."""
HOLD_FRAMES = "window.held = []; window.requestAnimationFrame = (callback) => held.push(callback)"
PAINT = """
const count = () => arguments[0].map((css) => document.querySelectorAll(css).length);
const before = count();
held.splice(0).forEach((callback) => callback(performance.now()));
return count().map((now, i) => now - before[i]);
"""
VIEWS = ("#completion .tokens *", "#measured .timeline svg *")


@pytest.fixture
def long(canned: Canned) -> Canned:
    canned.steps, canned.pause = STEPS * (NUM_STEPS // len(STEPS)), 0
    return canned


def frames(page: Browser) -> list[list[int]]:
    """Nodes that each frame adds to each of VIEWS, until nothing is left to do."""
    found = []
    while page.script("return held.length"):
        found.append(page.script(PAINT, VIEWS))
    return found


def test_thousands_of_steps_at_once_are_shown_in_slices(page: Browser, long: Canned) -> None:
    page.script(HOLD_FRAMES)
    complete(page)
    assert 0 < len(page.all("#completion .tokens .step")) < NUM_STEPS / 2
    added = frames(page)
    assert max(max(each) for each in added) < SLICE + LARGEST_STEP
    assert min(sum(nodes > 0 for nodes in view) for view in zip(*added, strict=True)) >= 8
    assert len(page.all("#completion .tokens .step")) == NUM_STEPS
    assert len(page.all("#measured .timeline g")) == NUM_STEPS
    label = page.one("#measured .timeline svg").get_attribute("aria-label")
    assert label == f"{NUM_STEPS} steps in {2.5 * NUM_STEPS:.0f} milliseconds"
    assert page.one("#completion .tokens").get_attribute("aria-label").startswith(f"Answer, {2 * NUM_STEPS} tokens")


def test_a_difference_far_behind_is_marked_once_its_token_is_shown(page: Browser, long: Canned) -> None:
    same = [step([{**one, "drafter": None}]) for each in long.steps[:2700] for one in each["tokens"]]
    long.plain_steps = [*same, step([token(77, " other")])]
    page.script(HOLD_FRAMES)
    page.one("#tab-race").click()
    assert race(page).endswith(f"the first difference is at token {len(same) + 1}.")
    assert not page.all("#race .different")
    frames(page)
    assert [one.text for one in page.all("#race .different")] == ["The", " other"]
