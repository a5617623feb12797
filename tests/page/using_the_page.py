"""What people do on the page, up to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from browser import Browser


def complete(page: Browser, prompt: str = "x") -> None:
    """Sends a completion and waits for its end."""
    page.one("#tab-completion").click()
    page.fill("#completion-prompt", prompt)
    page.one("#completion-form .primary").click()
    page.wait(lambda: page.text("#completion .foot"), "the end of the answer")


def race(page: Browser) -> str:
    page.one("#tab-race").click()
    page.one("#race-form .primary").click()
    page.wait(lambda: len(page.all("#race .foot:not(:empty)")) == 2, "both answers")
    page.wait(lambda: page.text("#race-form .primary") == "Race")
    return page.text("#race-verdict")
