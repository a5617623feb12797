"""What is made of a sweep: a table, the recommendation, JSON, and a configuration file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from specserve_bench.figures.summary import Summary
from specserve_bench.output.files import write_file
from specserve_bench.output.table import console, print_table
from specserve_bench.sweep.measure import rates, spread
from specserve_bench.sweep.present import columns, rate_rows
from specserve_bench.sweep.recommend import TOLERANCE, recommend
from specserve_bench.sweep.toml import engine_toml
from specserve_bench.sweep.with_setting import with_setting

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from specserve_bench.sweep.measure import Measurement, Plan
    from specserve_bench.sweep.recommend import Recommendation


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    drafters: tuple[str, ...]
    concurrency: int
    temperature: float
    summary: Summary


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What --json prints."""

    model: str
    recommended: tuple[str, ...]
    """Drafters."""
    why: str
    spread: float
    runs: list[Row]
    toml: str


def finish(args: Namespace, plan: Plan, found: Sequence[Measurement]) -> int:
    advised = recommend(rates(found))
    config = with_setting(plan.config, advised.setting, plan.drafters)
    text = engine_toml(config, f"Found by `specserve bench sweep`.\n{advised.why}")
    if args.write:
        write_file(args.write, text)
    if args.report:
        from specserve_bench.sweep.report import report  # it needs matplotlib

        write_file(args.report, report(plan, found, advised, text))
    if args.json:
        result = result_of(plan, found, advised, text)
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n")
        return 0
    title = f"{plan.config.model}: output tokens per second with so many requests at once, median of {plan.rounds}"
    print_table(title, columns(plan), rate_rows(plan, found))
    console().print(advised.why, soft_wrap=True)
    if (noise := spread(found)) > TOLERANCE:
        console().print(
            f"Rounds differ by {noise:.0%}: settings that are closer than that are not told apart. Measure on an idle "
            "machine, or with more --rounds.",
            soft_wrap=True,
        )
    print(f"\nWritten to {args.write}." if args.write else f"\n{text}", end="\n" if args.write else "")
    return 0


def result_of(plan: Plan, found: Sequence[Measurement], advised: Recommendation, toml: str) -> Result:
    runs = [
        Row(
            drafters=one.setting.drafters,
            concurrency=one.cell.concurrency,
            temperature=one.cell.temperature,
            summary=one.summary,
        )
        for one in found
    ]
    return Result(
        model=plan.config.model,
        recommended=advised.setting.drafters,
        why=advised.why,
        spread=spread(found),
        runs=runs,
        toml=toml,
    )
