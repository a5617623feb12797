"""The growth benchmark: the lines that it fits, the picture that it draws, and that it runs."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks.cases import growth
from benchmarks.lib.line_fit import Line, farthest, fit, off
from benchmarks.lib.plot import Panel, Series, picture
from benchmarks.lib.report import Options

ROOT = Path(__file__).parents[2]
SIZES = (256, 512, 1024, 2048, 4096, 8192)
SVG = "{http://www.w3.org/2000/svg}"


def test_costs_on_a_line_give_it_back():
    line = fit({n: 3.0 + 0.25 * n for n in SIZES})
    assert line == (pytest.approx(3.0), pytest.approx(0.25))
    assert off(line, {8: 10.0}) == {8: pytest.approx(2.0)}


def test_no_line_has_smaller_relative_errors():
    costs = {n: 1.0 + 0.001 * n * (1.2 if n == 1024 else 1.0) for n in SIZES}
    line = fit(costs)

    def error(base: float, each: float) -> float:
        return sum((Line(base, each).at(n) / cost - 1) ** 2 for n, cost in costs.items())

    for base in (0.99, 1.0, 1.01):
        for each in (0.99, 1.0, 1.01):
            assert error(line.base * base, line.each * each) >= error(*line)
    assert farthest(line, costs)[0] == 1024


def test_what_grows_faster_than_a_line_is_found_out():
    costs = {n: 1.0 + (n / 1024) ** 2 for n in SIZES}
    assert abs(farthest(fit(costs), costs)[1] - 1) > 0.5


def circles(svg: str) -> list[tuple[float, float]]:
    found = ElementTree.fromstring(svg).iter(f"{SVG}circle")
    return [(float(circle.attrib["cx"]), float(circle.attrib["cy"])) for circle in found]


def test_a_point_on_its_line_is_drawn_on_it_and_twice_the_cost_higher_up():
    points = {n: 2.0 + 0.01 * n for n in SIZES}
    svg = picture(
        [Panel("p", [Series("a", points, points), Series("b", {n: 2 * y for n, y in points.items()}, points)])]
    )
    a, b = circles(svg)[: len(SIZES)], circles(svg)[len(SIZES) :]
    assert all(low[0] == high[0] and low[1] > high[1] for low, high in zip(a, b, strict=True))
    curve = [
        tuple(map(float, at.split(",")))
        for at in next(ElementTree.fromstring(svg).iter(f"{SVG}polyline")).attrib["points"].split()
    ]
    assert (curve[0], curve[-1]) == (a[0], a[-1])
    assert {text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")} >= {"p", "a", "b", "256", "8192", "5"}


def test_the_picture_in_the_docs_has_every_point_of_a_full_run():
    svg = (ROOT / "docs" / "growth.svg").read_text(encoding="utf-8")
    assert len(circles(svg)) == 2 * (len(growth.CONTEXTS) + 2 * len(growth.COUNTS))
    assert "(growth.svg)" in (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")


def test_a_small_run_has_a_row_for_every_size_and_draws_it(tmp_path):
    plot = tmp_path / "growth.svg"
    rest = ("--contexts", "32", "4200", "--counts", "1", "3", "--plot", str(plot))
    result = growth.run(Options(threads=1, quick=True, profile=False, rest=rest))
    assert [row[0] for row in result.rows] == [
        f"{title} {n}"
        for title, sizes in (("context", (32, 4200)), ("requests", (1, 3)), ("short requests", (1, 3)))
        for n in sizes
    ]
    step = [float(row[1]) for row in result.rows]
    assert step[1] > step[0] > 0
    assert all(re.fullmatch(r"\w+ over [\w ]+: .* of the line\.", note) for note in result.notes[:-1])
    assert "MB of weights" in result.notes[-1]
    assert len(circles(plot.read_text(encoding="utf-8"))) == 12
