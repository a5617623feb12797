"""The tables of a sweep, and what is said below them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_bench.sweep.compared import TOLERANCE
from specserve_bench.sweep.measure import samples
from specserve_bench.sweep.samples import medians, noise

if TYPE_CHECKING:
    from specserve_bench.sweep.compared import Recommendation
    from specserve_bench.sweep.measure import Plan, Sweep


def partial(plan: Plan, sweep: Sweep) -> str:
    """How much of a sweep that was interrupted is there."""
    return f"partial, {len(sweep.found)} of {sweep.num_rounds * plan.runs_per_round} runs"


def columns(plan: Plan) -> tuple[str, ...]:
    return ("drafters", *(f"{cell.concurrency} at T {cell.temperature:g}" for cell in plan.cells))


def rate_rows(plan: Plan, sweep: Sweep) -> list[tuple[str, ...]]:
    """Output tokens per second; nothing where none were measured yet."""
    table = medians(samples(sweep.found))
    return [
        (setting.name, *(f"{cells[cell]:.1f}" if cell in cells else "" for cell in plan.cells))
        for setting, cells in table.items()
    ]


def load_columns() -> tuple[str, ...]:
    return ("load", "use", "tokens per second", "fastest", "tokens per second", "noise")


def load_rows(sweep: Sweep, advised: Recommendation) -> list[tuple[str, ...]]:
    chance = noise(samples(sweep.found))
    return [
        (
            str(each.cell),
            each.setting.name,
            f"{each.rate:.1f}",
            each.best.name,
            f"{each.best_rate:.1f}",
            f"{chance[each.cell]:.1%}" if each.cell in chance else "",
        )
        for each in advised.loads
    ]


def notes(sweep: Sweep, advised: Recommendation | None) -> list[str]:
    if advised is None:
        return ["Nothing is recommended: not every setting was measured under every load."] if sweep.found else []
    chance = noise(samples(sweep.found))
    if not chance:
        return ["One round tells nothing of noise: settings that are close are not told apart. Use more --rounds."]
    largest = max(chance.values())
    if largest <= TOLERANCE:
        return [f"Differences of up to {TOLERANCE:.0%} count for nothing."]
    said = f"Medians may differ by up to {largest:.1%} by chance"
    if not advised.by_noise:
        return [f"{said}, which decides nothing here."]
    return [
        f"{said}: settings that are closer than that are not told apart. Measure on an idle machine, or with more "
        "--rounds."
    ]
