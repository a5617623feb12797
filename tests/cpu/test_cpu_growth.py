"""The growth benchmark: the lines that it fits, the plot that it draws, and that it runs."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks.cases import growth
from benchmarks.lib import plot
from benchmarks.lib.line_fit import Line, fit, largest_deviation, ratios_to_line
from benchmarks.lib.plot import Panel, Series, require_matplotlib, save_plot
from benchmarks.lib.report import Options

ROOT = Path(__file__).parents[2]
SIZES = (256, 512, 1024, 2048, 4096, 8192)
SVG = "{http://www.w3.org/2000/svg}"


def test_costs_on_a_line_give_it_back():
    line = fit({n: 3.0 + 0.25 * n for n in SIZES})
    assert line == (pytest.approx(3.0), pytest.approx(0.25))
    assert ratios_to_line(line, {8: 10.0}) == {8: pytest.approx(2.0)}


def test_no_line_has_smaller_relative_errors():
    costs = {n: 1.0 + 0.001 * n * (1.2 if n == 1024 else 1.0) for n in SIZES}
    line = fit(costs)

    def error(intercept: float, slope: float) -> float:
        return sum((Line(intercept, slope).at(n) / cost - 1) ** 2 for n, cost in costs.items())

    for intercept in (0.99, 1.0, 1.01):
        for slope in (0.99, 1.0, 1.01):
            assert error(line.intercept * intercept, line.slope * slope) >= error(*line)
    assert largest_deviation(line, costs)[0] == 1024


def test_quadratic_growth_deviates_from_its_line():
    costs = {n: 1.0 + (n / 1024) ** 2 for n in SIZES}
    assert abs(largest_deviation(fit(costs), costs)[1] - 1) > 0.5


def measured_points(path: Path) -> dict[str, list[tuple[float, float]]]:
    """The markers of a saved plot by series, in pixels from the top left."""
    groups = [g for g in ElementTree.parse(path).iter(f"{SVG}g") if g.get("id", "").startswith("measured-")]
    return {g.attrib["id"]: [(float(u.attrib["x"]), float(u.attrib["y"])) for u in g.iter(f"{SVG}use")] for g in groups}


def test_twice_the_cost_is_drawn_higher_up_at_the_same_size(tmp_path):
    points = {n: 2.0 + 0.01 * n for n in SIZES}
    twice = {n: 2 * cost for n, cost in points.items()}
    line = Line(2.0, 0.01)
    save_plot([Panel("title", [Series("a", points, line.at), Series("b", twice, line.at)])], tmp_path / "plot.svg")
    low, high = measured_points(tmp_path / "plot.svg").values()
    assert len(low) == len(high) == len(SIZES)
    assert all(a[0] == b[0] and a[1] > b[1] for a, b in zip(low, high, strict=True))
    texts = {text.text for text in ElementTree.parse(tmp_path / "plot.svg").iter(f"{SVG}text")}
    assert texts >= {"title", "a", "b", "256", "8192", "5", "100"}


def test_the_same_points_give_the_same_file(tmp_path):
    panel = Panel("title", [Series("a", {1: 1.0, 2: 3.0}, Line(0.0, 1.0).at)])
    for name in ("one.svg", "two.svg"):
        save_plot([panel], tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_missing_matplotlib_is_named(monkeypatch):
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install matplotlib"):
        require_matplotlib()


def test_the_plot_in_the_docs_has_every_point_of_a_full_run():
    points = measured_points(ROOT / "docs" / "growth.svg")
    assert [len(some) for some in points.values()] == [len(growth.CONTEXTS)] * 2 + [len(growth.COUNTS)] * 4
    assert "(growth.svg)" in (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")


@pytest.mark.sweep
def test_a_small_run_has_a_row_for_every_size_and_draws_it(tmp_path):
    path = tmp_path / "growth.svg"
    rest = ("--contexts", "32", "4200", "--counts", "1", "3", "--plot", str(path))
    result = growth.run(Options(threads=1, quick=True, profile=False, rest=rest))
    assert [row[0] for row in result.rows] == [
        f"{title} {n}"
        for title, sizes in (("context", (32, 4200)), ("requests", (1, 3)), ("short requests", (1, 3)))
        for n in sizes
    ]
    step = [float(row[1]) for row in result.rows]
    assert step[1] > step[0] > 0
    assert all(re.fullmatch(r"\w+ over [\w ]+: .*; largest deviation .*\.", note) for note in result.notes[:-1])
    assert "MB of weights" in result.notes[-1]
    assert [len(points) for points in measured_points(path).values()] == [2] * 6
