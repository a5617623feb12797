"""Measured points and fitted curves on logarithmic axes, drawn by matplotlib.

matplotlib is imported only where a plot is drawn; the development group installs it. Knows nothing about what was
measured.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df")
PANEL_INCHES = (3.4, 3.0)
CURVE_POINTS = 41


class Series(NamedTuple):
    name: str
    points: Mapping[int, float]
    fitted: Callable[[float], float]


class Panel(NamedTuple):
    title: str
    series: Sequence[Series]


def require_matplotlib() -> None:
    """SystemExit without matplotlib: call it before a long measurement."""
    if find_spec("matplotlib") is None:
        raise SystemExit("--plot needs matplotlib. Run `pip install matplotlib`, or leave out --plot.")


def save_plot(panels: Sequence[Panel], path: Path) -> None:
    """Panels side by side; the format follows from the file's suffix. The same data gives the same SVG text."""
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    width, height = PANEL_INCHES
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "specserve", "font.size": 9}):
        figure = Figure(figsize=(width * len(panels), height), layout="constrained")
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        for number, (axes, panel) in enumerate(zip(row, panels, strict=True)):
            draw(axes, panel, number)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def draw(axes: Axes, panel: Panel, number: int) -> None:
    from matplotlib.ticker import LogLocator

    sizes = sorted({n for series in panel.series for n in series.points})
    for series, color in zip(panel.series, COLORS, strict=False):
        curve = [sizes[0] * (sizes[-1] / sizes[0]) ** (i / (CURVE_POINTS - 1)) for i in range(CURVE_POINTS)]
        axes.plot(curve, [series.fitted(n) for n in curve], color=color, linestyle="--", linewidth=1)
        points = axes.plot(list(series.points), list(series.points.values()), "o", color=color, label=series.name)
        points[0].set_gid(f"measured-{number}-{series.name}")
    axes.set(title=panel.title, xscale="log", yscale="log")
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(color="#d0d7de")
    axes.legend(frameon=False)


def save_bars(groups: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Groups of bars, one panel each: every value in relation to the first of its group."""
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "specserve", "font.size": 8}):
        figure = Figure(figsize=(PANEL_INCHES[0], 1.6 * len(groups)), layout="constrained")
        column = figure.subplots(len(groups), 1, squeeze=False)[:, 0]
        for axes, (title, values) in zip(column, groups.items(), strict=True):
            first = next(iter(values.values()))
            names = list(values)[::-1]
            axes.barh(names, [values[name] / first for name in names], color=COLORS[0])
            axes.axvline(1.0, color=COLORS[1], linewidth=1)
            axes.set(title=title)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
