"""Draws docs/images/speed.svg, the plot of README.md, from tables of docs/benchmarks.md. `make pages` runs it.

The figures stand in those tables alone. Rows are found by their words; where one is renamed, this stops and says so.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from svg import AMBER, BLUE, FAINT, GREEN, box, line, picture, text

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).resolve().parents[1] / "docs"
MACHINE = "The rows below were measured on 2 virtual cores of an AMD EPYC (Zen 5)"
"""Rows of other machines stand before it in the page."""
REQUESTS = (1, 8, 32)
COLOURS = {"llama.cpp": BLUE, "OpenVINO": AMBER, "vLLM": GREEN}
WIDTH, HEIGHT, LEFT, PANEL = 760.0, 300.0, 20.0, 248.0
GROUP, BAR, SCALE, GROUND = 78.0, 34.0, 38.0, 250.0
"""The width of the two bars of a number of requests, that of one, the height of 1x, and where bars stand."""


class Panel(NamedTuple):
    """`ratios`: tokens per second of specserve by those of each other engine, for each number of requests."""

    title: str
    subtitle: str
    ratios: dict[str, list[float]]


def main() -> None:
    (DOCS / "images" / "speed.svg").write_text(drawn(panels((DOCS / "benchmarks.md").read_text())))


def panels(page: str) -> list[Panel]:
    rows = page.partition(MACHINE)[2]
    plain = figures(rows, "`peers`, half-billion in bfloat16, plain greedy at 1 / 8 / 32 (one round)")
    edits = figures(rows, "`peers`, n-gram speculation in all engines (3 rounds): edits; sampled at 0.8").partition(
        ";"
    )[0]
    return [
        Panel("Weights of 4 bits", "1.5 B parameters, Q4_K_M", of_file(rows, "random 1.5 B shape, Q4_K_M")),
        Panel("Weights of 16 bits", "0.5 B parameters, bfloat16", by_engine(plain)),
        Panel("N-gram drafts in all engines", "edits of a file, demo model", by_engine(edits)),
    ]


def figures(rows: str, case: str) -> str:
    """Of a row with the columns case, measured and target: what was measured."""
    found = re.search(rf"^\| {re.escape(case)} \| (.+?) \|", rows, flags=re.MULTILINE)
    if found is None:
        raise SystemExit(
            f"docs/benchmarks.md has no row {case!r} behind {MACHINE!r}: name the row that has these figures"
        )
    return found[1]


def by_engine(measured: str) -> dict[str, list[float]]:
    """Of `... tokens/s: 1.2x / 1.3x / 1.2x vLLM, 1.1x / 1.2x / 1.2x OpenVINO`."""
    lists = re.findall(r"((?:\**[\d.]+x\**(?: / )?){3}) ([\w.]+)", measured)
    return {engine: factors(numbers) for numbers, engine in lists}


def of_file(rows: str, file: str) -> dict[str, list[float]]:
    """The rows `decode, 1`, `decode, 8` and `decode, 32` of a file; their ratios are to llama.cpp and to OpenVINO."""
    found = re.search(rf"^\| {re.escape(file)}((?: \| decode, \d+ \|.+\n\|)+)", rows, flags=re.MULTILINE)
    if found is None:
        raise SystemExit(f"docs/benchmarks.md has no rows of {file!r} behind {MACHINE!r}: name the file that has them")
    lines = [line.split("|") for line in found[1].splitlines() if "decode" in line]
    pairs = [factors(line[-3]) for line in lines]
    return {"llama.cpp": [pair[0] for pair in pairs], "OpenVINO": [pair[1] for pair in pairs]}


def factors(numbers: str) -> list[float]:
    return [float(number) for number in re.findall(r"([\d.]+)x", numbers)]


def drawn(shown: list[Panel]) -> str:
    elements = [
        text(LEFT, 24, "Tokens per second of specserve, as a multiple of those of", font_weight="600"),
        *legend(50),
    ]
    for number, panel in enumerate(shown):
        elements += bars(panel, LEFT + PANEL * number)
    title = "; ".join(f"{panel.title}: {spoken(panel)}" for panel in shown)
    return picture(WIDTH, HEIGHT, title, elements)


def legend(y: float) -> Iterator[str]:
    x = LEFT
    for engine, colour in COLOURS.items():
        yield box(x, y - 11, 12, 12, colour, rx=3.0)
        yield text(x + 18, y, engine, font_size=13.0)
        x += 100
    yield line([(x, y - 5), (x + 22, y - 5)], stroke_width=1.5, stroke_dasharray="5 4")
    yield text(x + 28, y, "as fast", font_size=13.0)


def bars(panel: Panel, left: float) -> Iterator[str]:
    yield text(left, 82, panel.title, font_weight="600", font_size=13.0)
    yield text(left, 99, panel.subtitle, font_size=12.0)
    right = left + GROUP * len(REQUESTS) - 6
    for place, requests in enumerate(REQUESTS):
        for order, (engine, ratios) in enumerate(panel.ratios.items()):
            x, height = left + GROUP * place + (BAR + 2) * order, SCALE * ratios[place]
            yield box(x, GROUND - height, BAR, height, COLOURS[engine], rx=2.0)
            yield text(x + BAR / 2, GROUND - height - 5, f"{ratios[place]:g}x", font_size=11.5, text_anchor="middle")
        yield text(left + GROUP * place + BAR + 1, GROUND + 17, str(requests), font_size=12.0, text_anchor="middle")
    yield line([(left - 2, GROUND - SCALE), (right, GROUND - SCALE)], stroke_width=1.5, stroke_dasharray="5 4")
    yield line([(left - 2, GROUND), (right, GROUND)], FAINT, stroke_width=1.5)
    yield text(left + (right - left) / 2, GROUND + 36, "requests at once", font_size=12.0, text_anchor="middle")


def spoken(panel: Panel) -> str:
    return ", ".join(
        f"{' / '.join(f'{ratio:g}x' for ratio in ratios)} of {engine}" for engine, ratios in panel.ratios.items()
    )


if __name__ == "__main__":
    main()
