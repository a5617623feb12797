"""The HTML report of a sweep: what is recommended, and all rates beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_bench.output.page import Code, Plot, Section, Table, Text, page
from specserve_bench.output.plots import Labels, grouped_bars
from specserve_bench.sweep.cells import PLAIN
from specserve_bench.sweep.measure import rates
from specserve_bench.sweep.present import columns, rate_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_bench.sweep.measure import Measurement, Plan
    from specserve_bench.sweep.recommend import Recommendation


def report(plan: Plan, found: Sequence[Measurement], advised: Recommendation, toml: str) -> str:
    sections = [
        Section("Recommendation", [Text(advised.why), Code(toml)]),
        Section("Tokens per second", [Table(columns(plan), rate_rows(plan, found)), Plot(speed_ups(plan, found))]),
    ]
    return page(f"specserve bench sweep: {plan.config.model}", sections)


def speed_ups(plan: Plan, found: Sequence[Measurement]) -> str:
    table = {setting.name: cells for setting, cells in rates(found).items()}
    ratios = {
        name: [cells[cell] / table[PLAIN][cell] for cell in plan.cells]
        for name, cells in table.items()
        if name != PLAIN
    }
    groups = [f"{cell.concurrency}, T {cell.temperature:g}" for cell in plan.cells]
    return grouped_bars(Labels("Times as fast as no drafter", "requests at once, temperature", "times"), groups, ratios)
