"""The table of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_bench.sweep.measure import rates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_bench.sweep.measure import Measurement, Plan


def columns(plan: Plan) -> tuple[str, ...]:
    return ("drafters", *(f"{cell.concurrency} at T {cell.temperature:g}" for cell in plan.cells))


def rate_rows(plan: Plan, found: Sequence[Measurement]) -> list[tuple[str, ...]]:
    """Output tokens per second."""
    return [(setting.name, *(f"{cells[cell]:.1f}" for cell in plan.cells)) for setting, cells in rates(found).items()]
