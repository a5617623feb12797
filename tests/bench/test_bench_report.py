"""Reports: one file each, complete in itself, and in the colours of the reader's theme."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from specserve.config import EngineConfig
from specserve_bench.client.records import DraftCounts, Failure, RequestRecord
from specserve_bench.figures.summary import summarise
from specserve_bench.output.page import Table
from specserve_bench.serve.report import report as serve_report
from specserve_bench.serve.settings import Settings
from specserve_bench.sweep.cells import Cell, settings_of
from specserve_bench.sweep.measure import Measurement, Plan, Sweep, advise
from specserve_bench.sweep.report import report as sweep_report

RECORDS = [
    RequestRecord(
        number=number,
        kind=("code", "<edit>")[number % 2],
        sent=number * 0.1,
        first=0.05,
        last=0.5 + number / 10,
        gaps=(0.2, 0.25 + number / 100),
        num_tokens=5,
        drafters={"ngram": DraftCounts(4, 3)},
        stops={"rejected": 3, "no_draft": 1},
    )
    for number in range(8)
]
SETTINGS = Settings(model="<mine>")
FAILED = RequestRecord(number=8, kind="code", sent=0.0, failure=Failure("timeout", "late"))


class Page(HTMLParser):
    """Checks that what is opened is closed, and collects ids and what is fetched from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.fetched = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids += [values["id"]] if "id" in values else []
        self.fetched += [values[name] for name in ("src", "href", "xlink:href") if name in values]
        if tag not in ("meta", "!doctype"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def of_serve():
    records = [*RECORDS, FAILED]
    return serve_report("http://host, <model>", SETTINGS, summarise(records, 2.0), records)


PLAN = Plan(
    EngineConfig(model="<model>"), ("ngram",), settings_of(("ngram",)), (Cell(1, 0.0), Cell(8, 0.8)), 1, 1,
    "completions", ("code",), 8,
)  # fmt: skip
RUNS = [Measurement(0, setting, cell, summarise(RECORDS, 2.0)) for setting in PLAN.settings for cell in PLAN.cells]


@pytest.fixture(scope="module")
def of_sweep():
    sweep = Sweep(RUNS, 1, False)
    return sweep_report(PLAN, sweep, advise(PLAN, sweep.found), 'model = "<model>"')


@pytest.fixture(params=["of_serve", "of_sweep"])
def report(request):
    return request.getfixturevalue(request.param)


def test_it_is_well_formed_and_needs_no_other_file(report):
    page = Page(report)
    assert [link for link in page.fetched if not link.startswith("#")] == []
    assert "<script" not in report
    assert "@import" not in report
    assert "url(http" not in report


def test_plots_of_a_page_share_no_id_that_another_refers_to(report):
    page = Page(report)
    meant = {link.removeprefix("#") for link in page.fetched} | set(re.findall(r"url\(#([^)]+)\)", report))
    assert meant
    assert all(page.ids.count(name) == 1 for name in meant)


def test_colours_are_those_of_the_theme(report):
    svg = "".join(re.findall(r"<svg.*?</svg>", report, re.DOTALL))
    assert "var(--ink)" in svg
    assert "var(--series-1)" in svg
    assert re.findall(r"#[0-9a-f]{6}\b", svg) == []
    assert "prefers-color-scheme: dark" in report


def test_names_cannot_write_html(of_serve, of_sweep):
    assert "<model>" not in of_serve
    assert rows(of_serve, "Settings")[1] == ["model", "&lt;mine&gt;"]
    assert "&lt;edit&gt;" in of_serve
    assert "<model>" not in of_sweep
    assert ">model = &quot;&lt;model&gt;&quot;</pre>" in of_sweep


def rows(report, name):
    """Of the table that shows it: what its cells have."""
    found = re.search(rf'aria-label="{name}" tabindex="0"><table>(.*?)</table>', report, re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", found[1])]


def test_its_title_is_that_of_the_run(of_serve, of_sweep):
    for report, title in ((of_serve, "http://host, &lt;model&gt;"), (of_sweep, "specserve bench sweep: &lt;model&gt;")):
        assert re.findall("<(?:h1|title)>(.*?)</(?:h1|title)>", report) == [title] * 2


def test_columns_of_numbers_are_aligned_to_the_right():
    html = Table("t", ("", "a", "b"), [("x", "1.5 s", "ngram"), ("y", "", "2")]).html()
    assert html.count('class="number"') == 3  # with its title
    assert '<td class="number">1.5 s</td><td>ngram</td>' in html


def test_the_figures_are_there(of_serve, of_sweep):
    assert rows(of_serve, "Figures")[1:4] == [["failed: timeout", "1"], ["duration", "2.00 s"], ["prompt tokens", "0"]]
    assert rows(of_serve, "Draft tokens") == [
        ["drafter", "drafted", "accepted", "share"],
        ["ngram", "32", "24", "75.0%"],
    ]
    assert ["rejected", "24", "75.0%"] in rows(of_serve, "Steps")
    assert ["prompts", "code, edit, chat, json"] in rows(of_serve, "Settings")
    assert ["ignore eos", "no"] in rows(of_serve, "Settings")
    assert of_serve.count("<svg") == 4
    assert rows(of_sweep, "Tokens per second")[1:] == [["off", "20.0", "20.0"], ["ngram", "20.0", "20.0"]]
    assert of_sweep.count("<svg") == 1


def test_a_part_of_a_sweep_says_that_it_is_one():
    for count, says in ((2, "Nothing is recommended"), (4, "Use no drafter"), (5, "Use no drafter")):
        runs = [*RUNS, RUNS[0]._replace(round=1)][:count]
        sweep = Sweep(runs, 1 + count // 5, True)
        report = sweep_report(PLAN, sweep, advise(PLAN, runs), None)
        Page(report)
        assert f"This sweep was interrupted: partial, {count} of {4 * sweep.num_rounds} runs." in report
        assert says in report
        assert report.count("<svg") == (count >= 4)


def test_the_same_run_gives_the_same_text(of_serve):
    records = [*RECORDS, FAILED]
    assert serve_report("http://host, <model>", SETTINGS, summarise(records, 2.0), records) == of_serve
