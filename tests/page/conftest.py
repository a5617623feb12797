"""A browser over canned answers; the fake engine of tests/server, for the page's routes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import Browser, browser
from fake_server import Canned, fake_server

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "server"), str(TESTS / "text"), str(TESTS.parent / "tools")]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture
def canned() -> Canned:
    return Canned()


@pytest.fixture
def page(chromium: Browser, canned: Canned) -> Iterator[Browser]:
    """Ends with what must hold after every test: a silent console, and no request to anywhere else."""
    with fake_server(canned) as url:
        chromium.open(url)
        chromium.wait(lambda: "toy" in chromium.text("#served"))
        yield chromium
        refused = canned.error is not None or canned.key is not None
        expected = r"Failed to load resource: .* status of \d{3}" if refused else "$."
        assert not [line for line in chromium.console() if not re.search(expected, line)]
        assert not [one for one in chromium.requested() if not one.startswith((url, "data:", "about:"))]
