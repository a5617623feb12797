"""axe-core, which looks for what keeps people from using a page. `make test-page` fetches it into build/page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from browser import Browser

AXE = Path(__file__).parents[2] / "build" / "page" / "axe.min.js"
SERIOUS = ("serious", "critical")
RUN = "const done = arguments[arguments.length - 1]; axe.run(document).then(done, (e) => done(String(e)));"


def axe_findings(browser: Browser) -> list[str]:
    """Rules that the page breaks, with an element each."""
    if not AXE.exists():
        pytest.skip("axe-core is not there; `make test-page` fetches it")
    browser.script(AXE.read_text(encoding="utf-8"))
    found = browser.driver.execute_async_script(RUN)
    return [f"{v['id']}: {v['nodes'][0]['html']}" for v in found["violations"] if v["impact"] in SERIOUS]
