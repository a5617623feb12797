"""Plots as SVG text whose colours are CSS variables of the page around them, so that they follow its theme.

matplotlib draws them; it comes with specserve-bench[report] and is imported only here. Knows nothing of what is drawn.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes

INCHES = (6.0, 3.4)
INK, GRID = "#010203", "#040506"
SERIES = ("#070801", "#070802", "#070803", "#070804", "#070805", "#070806")
"""Colours that matplotlib writes as they are; each stands for a variable."""
VARIABLES = {INK: "var(--ink)", GRID: "var(--grid)"} | {
    color: f"var(--series-{number})" for number, color in enumerate(SERIES, 1)
}


METADATA = ("Creator", "Date", "Format", "Type")
"""What matplotlib writes of its own: left out."""
BELOW: dict[str, Any] = {"frameon": False, "loc": "outside lower left", "ncols": 4}
"""A legend below the plot, where it hides nothing and small screens show it."""


class Curve(NamedTuple):
    name: str
    x: Sequence[float]
    y: Sequence[float]


class Labels(NamedTuple):
    title: str
    x: str
    y: str


def require_matplotlib() -> None:
    """ConfigError without matplotlib: call it before a long measurement."""
    if find_spec("matplotlib") is None:
        raise ConfigError("bench: --report needs matplotlib; run pip install 'specserve-bench[report]'.")


def curves(labels: Labels, lines: Sequence[Curve]) -> str:
    """Lines over a common x axis; those without points are left out."""

    def draw(axes: Axes) -> None:
        shown = [line for line in lines if line.x]
        for number, line in enumerate(shown):
            axes.plot(line.x, line.y, color=SERIES[number % len(SERIES)], label=visible(line.name), linewidth=1.5)
        axes.set_ylim(bottom=0)
        if len(shown) > 1:
            axes.figure.legend(**BELOW)

    return svg(labels, draw)


def grouped_bars(labels: Labels, groups: Sequence[str], bars: Mapping[str, Sequence[float]]) -> str:
    """A bar of each name in every group."""

    def draw(axes: Axes) -> None:
        width = 0.8 / len(bars)
        for number, (name, heights) in enumerate(bars.items()):
            places = [at + (number - (len(bars) - 1) / 2) * width for at in range(len(groups))]
            axes.bar(places, heights, width * 0.9, color=SERIES[number % len(SERIES)], label=visible(name))
        axes.set_xticks(range(len(groups)), groups)
        axes.figure.legend(**BELOW)

    return svg(labels, draw)


def visible(name: str) -> str:
    """matplotlib leaves names that begin with _ out of legends; a space of no width is before them."""
    return f"\u200b{name}" if name.startswith("_") else name


def svg(labels: Labels, draw: Callable[[Axes], None]) -> str:
    """The element alone. The same data gives the same text, and no two plots of a page share an id."""
    from io import StringIO

    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(
        {
            "text.color": INK,
            "axes.labelcolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "axes.edgecolor": GRID,
            "svg.fonttype": "none",
            "svg.hashsalt": labels.title,
            "font.size": 9,
            "text.parse_math": False,  # names may have dollar signs
        }
    ):
        figure = Figure(figsize=INCHES, layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.set(title=labels.title, xlabel=labels.x, ylabel=labels.y)
        axes.grid(color=GRID, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        text = StringIO()
        figure.savefig(
            text, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    found = text.getvalue()
    found = found[found.index("<svg") :]
    for color, variable in VARIABLES.items():
        found = found.replace(color, variable)
    return found
