"""The HTML report of a sweep: what is recommended, and all rates beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_bench.output.page import Code, Plot, Section, Table, Text, page
from specserve_bench.output.plots import Labels, grouped_bars
from specserve_bench.sweep.cells import PLAIN
from specserve_bench.sweep.measure import samples
from specserve_bench.sweep.present import columns, load_columns, load_rows, notes, partial, rate_rows
from specserve_bench.sweep.samples import medians

if TYPE_CHECKING:
    from specserve_bench.sweep.compared import Recommendation
    from specserve_bench.sweep.measure import Plan, Sweep


def report(plan: Plan, sweep: Sweep, advised: Recommendation | None, toml: str | None) -> str:
    """`advised` and `toml` are None where a setting was not measured under every load."""
    said = [Text(line) for line in notes(sweep, advised)]
    if sweep.interrupted:
        said.insert(0, Text(f"This sweep was interrupted: {partial(plan, sweep)}."))
    table = Table("Tokens per second", columns(plan), rate_rows(plan, sweep))
    sections = [Section("Tokens per second", [table, *speed_ups(plan, sweep)])]
    if advised is None:
        sections.insert(0, Section("Recommendation", said))
    else:
        code = [] if toml is None else [Code("Configuration", toml)]
        sections.insert(0, Section("Recommendation", [Text(advised.why), *said, *code]))
        loads = Table("What to use under one load alone", load_columns(), load_rows(sweep, advised))
        sections.append(Section("One load alone", [loads]))
    return page(f"specserve bench sweep: {plan.config.model}", sections)


def speed_ups(plan: Plan, sweep: Sweep) -> list[Plot]:
    """Of what was measured under every load; none without no drafter beside it."""
    table = {
        setting.name: cells
        for setting, cells in medians(samples(sweep.found)).items()
        if all(cell in cells for cell in plan.cells)
    }
    plain = table.pop(PLAIN, None)
    if plain is None or not table:
        return []
    ratios = {name: [cells[cell] / plain[cell] for cell in plan.cells] for name, cells in table.items()}
    groups = [f"{cell.concurrency}, T {cell.temperature:g}" for cell in plan.cells]
    labels = Labels("Times as fast as no drafter", "requests at once, temperature", "times")
    return [Plot("Times as fast as no drafter", grouped_bars(labels, groups, ratios))]
