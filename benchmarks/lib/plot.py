"""Curves on logarithmic axes as an SVG text of its own: measured points, and the line that was fitted to them.

Owns the picture's layout. Knows nothing about what was measured, and needs no library.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WIDE, HIGH, LEFT, TOP, BOTTOM = 340, 300, 50, 42, 40
"""A panel's size, and what its frame leaves free for axes and title; to its right it leaves 20."""
COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df")
TICKS = (1, 2, 5)
STYLE = "font: 12px sans-serif; fill: #57606a"


class Series(NamedTuple):
    name: str
    points: Mapping[int, float]
    fitted: Mapping[int, float]
    """The line, at the same sizes."""


class Panel(NamedTuple):
    title: str
    series: Sequence[Series]


class Scale(NamedTuple):
    """A logarithmic axis: `low`..`high` to `begin`..`end` of the picture."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, x: float) -> float:
        return self.begin + (self.end - self.begin) * math.log(x / self.low) / math.log(self.high / self.low)


def picture(panels: Sequence[Panel]) -> str:
    size = f"{WIDE * len(panels)} {HIGH}"
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" style="{STYLE}; background: #fff">']
    for i, panel in enumerate(panels):
        lines += [f'<g transform="translate({WIDE * i} 0)">', *drawn(panel), "</g>"]
    return "\n".join([*lines, "</svg>"]) + "\n"


def drawn(panel: Panel) -> Iterator[str]:
    sizes = sorted({n for series in panel.series for n in series.points})
    costs = [cost for series in panel.series for cost in (*series.points.values(), *series.fitted.values()) if cost > 0]
    across = Scale(sizes[0], sizes[-1], LEFT, WIDE - 20)
    up = Scale(min(costs) / 1.2, max(costs) * 1.2, HIGH - BOTTOM, TOP)
    yield f'<text x="{LEFT}" y="20" fill="#1f2328">{panel.title}</text>'
    for n in sizes:
        yield line(across.at(n), TOP, across.at(n), HIGH - BOTTOM)
        yield f'<text x="{across.at(n):.1f}" y="{HIGH - BOTTOM + 18}" text-anchor="middle">{n}</text>'
    for cost in ticks(up.low, up.high):
        yield line(LEFT, up.at(cost), WIDE - 20, up.at(cost))
        yield f'<text x="{LEFT - 6}" y="{up.at(cost) + 4:.1f}" text-anchor="end">{cost:g}</text>'
    for i, (series, color) in enumerate(zip(panel.series, COLORS, strict=False)):
        yield f'<text x="{LEFT + 8}" y="{TOP + 16 + 16 * i}" fill="{color}">{series.name}</text>'
        yield path(series.fitted, across, up, f'stroke="{color}" stroke-dasharray="5 4"')
        for n, cost in series.points.items():
            yield f'<circle cx="{across.at(n):.1f}" cy="{up.at(cost):.1f}" r="3.5" fill="{color}"/>'


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#d0d7de"/>'


def path(points: Mapping[int, float], across: Scale, up: Scale, look: str) -> str:
    """Through many sizes between the given ones: a straight line is curved on these axes."""
    ends = sorted(points)
    slope = (points[ends[-1]] - points[ends[0]]) / (ends[-1] - ends[0])
    sizes = [ends[0] * (ends[-1] / ends[0]) ** (i / 40) for i in range(41)]
    costs = [points[ends[0]] + slope * (n - ends[0]) for n in sizes]
    at = " ".join(f"{across.at(n):.1f},{up.at(cost):.1f}" for n, cost in zip(sizes, costs, strict=True) if cost > 0)
    return f'<polyline points="{at}" fill="none" {look}/>'


def ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**decade for decade in decades for step in TICKS if low <= step * 10.0**decade <= high]
