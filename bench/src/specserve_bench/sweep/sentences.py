"""Why a sweep recommends what it does, in words. Decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_bench.sweep.cells import PLAIN
from specserve_bench.sweep.compared import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_bench.sweep.cells import Cell, Setting
    from specserve_bench.sweep.compared import Advice, Compared, Tolerances


def why(chosen: Compared, compared: Sequence[Compared], loads: Sequence[Advice], allowed: Tolerances) -> str:
    """`chosen`: for all loads together."""
    if all(each.setting == chosen.setting for each in loads):
        first = f"Use {name(chosen.setting)} under every load"
        about_all = on_average(chosen, compared, allowed)
    else:
        first = f"Use {by_load(loads)}"
        about_all = (
            f"No setting is as fast as these under every load; one server for all of them had better use "
            f"{name(chosen.setting)}: {on_average(chosen, compared, allowed)}"
        )
    return ". ".join(("; ".join((first, *noisy(loads, allowed))), f"{about_all[0].upper()}{about_all[1:]}")) + "."


def name(setting: Setting) -> str:
    return "no drafter" if setting.name == PLAIN else setting.name


def by_load(loads: Sequence[Advice]) -> str:
    """`ngram with 1, 8 and 32 requests at temperature 0; no drafter with ...`."""
    cells: dict[Setting, list[Cell]] = {}
    for each in loads:
        cells.setdefault(each.setting, []).append(each.cell)
    return "; ".join(f"{name(setting)} with {together(own)}" for setting, own in cells.items())


def together(cells: Sequence[Cell]) -> str:
    """Loads by temperature."""
    by_temperature: dict[float, list[int]] = {}
    for cell in cells:
        by_temperature.setdefault(cell.temperature, []).append(cell.concurrency)
    return " and with ".join(
        f"{listed(each)} at temperature {temperature:g}" for temperature, each in by_temperature.items()
    )


def listed(numbers: Sequence[int]) -> str:
    """`one request`, `8 requests`, `1, 8 and 32 requests`."""
    if len(numbers) == 1:
        return "one request" if numbers[0] == 1 else f"{numbers[0]} requests"
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]} requests"


def noisy(loads: Sequence[Advice], allowed: Tolerances) -> list[str]:
    """What is faster by more than 3 %, and by chance may not be."""
    return [
        f"with {each.cell} {name(each.best)} is {each.lead:.1%} faster, which is within noise "
        f"({allowed.cells[each.cell]:.1%})"
        for each in loads
        if each.lead > TOLERANCE
    ]


def on_average(chosen: Compared, compared: Sequence[Compared], allowed: Tolerances) -> str:
    """How fast it is, and what is faster on average and yet not used."""
    if chosen.setting.name == PLAIN:
        parts = [f"none that is nowhere slower than no drafter is more than {allowed.mean:.1%} faster on average"]
    else:
        parts = [
            f"on average it has {chosen.mean:.2f} times the tokens per second of no drafter, and at the least "
            f"{chosen.lowest:.2f} times, with {chosen.lowest_cell}"
        ]
    for each in sorted(compared, key=lambda each: -each.mean):
        lead = each.mean / chosen.mean - 1
        if lead <= 0:
            continue
        said = f"{name(each.setting)} is {lead:.1%} faster on average"
        if 1 / each.lowest - 1 > allowed.cells[each.lowest_cell]:
            said += f", but {1 - each.lowest:.1%} slower than no drafter with {each.lowest_cell}"
        elif lead > TOLERANCE:
            said += ", which is within noise"
        parts.append(said)
    return "; ".join(parts)
