"""Reports of `specserve bench` in a browser: light and dark, wide and narrow, for keyboards and screen readers."""

from __future__ import annotations

import pytest
from axe import axe_findings
from browser import DESKTOP, PHONE, Browser, needs_chromium

from specserve.config import EngineConfig
from specserve_bench.client.records import DraftCounts, RequestRecord
from specserve_bench.figures.summary import summarise
from specserve_bench.serve.report import report as serve_report
from specserve_bench.serve.settings import Settings
from specserve_bench.sweep.cells import Cell, settings_of
from specserve_bench.sweep.measure import Measurement, Plan, Sweep, advise
from specserve_bench.sweep.report import report as sweep_report

pytestmark = needs_chromium
SCRIPT = "<script>document.title = 'changed'</script>"
PLAN = Plan(
    EngineConfig(model=SCRIPT), ("ngram",), settings_of(("ngram",)),
    [Cell(number, temperature) for temperature in (0.0, 1.0) for number in (1, 8, 32)], 1, 1,
    "completions", ("code",), 8,
)  # fmt: skip


def record(number: int) -> RequestRecord:
    return RequestRecord(
        number=number, kind=("code", SCRIPT)[number % 2], sent=number / 10, first=0.05 + number / 100, last=1.0,
        gaps=(0.4, 0.5), num_tokens=9, drafters={"ngram": DraftCounts(4, 3)},
        stops={"no_draft: none of N proposed draft tokens was verified: does not pay": 3},
    )  # fmt: skip


def of_serve() -> str:
    records = [record(number) for number in range(12)]
    return serve_report(f"http://127.0.0.1:8000, {SCRIPT}", Settings(model=SCRIPT), summarise(records, 2.0), records)


def of_sweep() -> str:
    runs = [
        Measurement(0, setting, cell, summarise([record(0)], 1.0)) for setting in PLAN.settings for cell in PLAN.cells
    ]
    comment = "# a comment of many words that is wider than a telephone and is moved within its box"
    return sweep_report(PLAN, Sweep(runs, 1, True), advise(PLAN, runs), comment)


@pytest.mark.parametrize("report", [of_serve, of_sweep])
@pytest.mark.parametrize(("size", "theme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_a_report_is_for_everyone_and_loads_nothing(chromium: Browser, tmp_path, report, size, theme) -> None:
    file = tmp_path / "report.html"
    file.write_text(report())
    chromium.open(file.as_uri(), size, theme)
    assert chromium.requested() == [file.as_uri()]
    assert [line for line in chromium.console() if "favicon" not in line] == []
    assert SCRIPT in chromium.driver.title
    assert chromium.script("return document.documentElement.scrollWidth <= window.innerWidth")
    background = chromium.script("return getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[theme]
    colors = chromium.script("return [...document.querySelectorAll('svg text')].map((t) => getComputedStyle(t).fill)")
    assert set(colors) == {{"light": "rgb(31, 35, 40)", "dark": "rgb(230, 237, 243)"}[theme]}
    assert axe_findings(chromium) == []
