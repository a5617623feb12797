"""The system's chromium without a window, driven by selenium: one for all tests of a file.

Owns how it is found and started, and what a test asks it: elements, waits, the console, which URLs were requested.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from shutil import which
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHROMIUM, DRIVER = which("chromium"), which("chromedriver")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="there is no chromium with chromedriver; `make test-page` installs Debian's",
)
PATIENCE = 60.0
"""Seconds; the machine may have much else to do."""
DESKTOP, PHONE = (1360, 860), (390, 844)
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"),
    *("--no-first-run", "--disable-component-update", "--disable-sync", "--lang=en"),
)


class Browser:
    """Made by `browser`."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str, size: tuple[int, int] = DESKTOP, theme: str = "light") -> None:
        """A fresh page; what was logged before is forgotten."""
        self.driver.get("about:blank")
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.console(), self.requested()
        self.driver.get(url)

    def all(self, css: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", css))

    def one(self, css: str) -> Any:
        """The first that is shown, once there is one."""
        return self.wait(lambda: next((found for found in self.all(css) if found.is_displayed()), None), css)

    def wait(self, find: Callable[[], Any], what: str = "what was waited for") -> Any:
        """What `find` returns as soon as it is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = find()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"{what} did not come; the console says {self.console()}")

    def text(self, css: str) -> str:
        return str(self.script("return document.querySelector(arguments[0])?.textContent ?? ''", css))

    def script(self, code: str, *arguments: object) -> Any:
        return self.driver.execute_script(code, *arguments)

    def type(self, css: str, text: str) -> None:
        self.one(css).send_keys(text)

    def fill(self, css: str, text: str) -> None:
        """At once, for texts that no keyboard has."""
        code = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"
        self.script(code, self.one(css), text)

    def point_at(self, element: Any) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).move_to_element(element).perform()

    def press(self, *keys: str) -> None:
        """Where the focus is."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def console(self) -> list[str]:
        """Since it was asked last."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def requested(self) -> list[str]:
        """URLs, since it was asked last."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


@contextmanager
def browser() -> Iterator[Browser]:
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
