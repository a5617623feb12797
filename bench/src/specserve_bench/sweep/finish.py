"""What is made of a sweep: tables, the recommendation, JSON, a report and a configuration file."""

from __future__ import annotations

import sys
from textwrap import fill
from typing import TYPE_CHECKING

import msgspec

from specserve.command.exit_codes import EXIT_INTERRUPTED
from specserve_bench.figures.summary import Summary
from specserve_bench.output.files import write_file
from specserve_bench.output.table import console, print_table
from specserve_bench.sweep.measure import advise, samples
from specserve_bench.sweep.present import columns, load_columns, load_rows, notes, partial, rate_rows
from specserve_bench.sweep.samples import noise
from specserve_bench.sweep.toml import engine_toml
from specserve_bench.sweep.with_setting import with_setting

if TYPE_CHECKING:
    from argparse import Namespace

    from specserve_bench.sweep.compared import Recommendation
    from specserve_bench.sweep.measure import Plan, Sweep


COMMENT_WIDTH = 100
"""Columns of what is said in a configuration file."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    round: int
    """From 0 on."""
    drafters: tuple[str, ...]
    concurrency: int
    temperature: float
    summary: Summary


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What to use under one load alone."""

    concurrency: int
    temperature: float
    recommended: tuple[str, ...]
    """Drafters."""
    output_tokens_per_second: float
    fastest: tuple[str, ...]
    fastest_tokens_per_second: float
    noise: float | None
    """How far the medians of two equally fast settings may lie apart by chance, as a share; None of one round."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What --json prints."""

    model: str
    interrupted: bool
    """Whether runs are missing."""
    recommended: tuple[str, ...] | None
    """Drafters; None where a setting was not measured under every load."""
    why: str
    loads: list[Load]
    runs: list[Row]
    toml: str | None


def finish(args: Namespace, plan: Plan, sweep: Sweep) -> int:
    advised = advise(plan, sweep.found)
    text = None if advised is None else toml_of(plan, sweep, advised)
    if args.write and text is not None:
        write_file(args.write, text)
    if args.report and sweep.found:
        from specserve_bench.sweep.report import report  # it needs matplotlib

        write_file(args.report, report(plan, sweep, advised, text))
    if args.json:
        result = result_of(plan, sweep, advised, text)
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n")
    else:
        print_all(plan, sweep, advised)
        if text is not None:
            print(f"\nWritten to {args.write}." if args.write else f"\n{text}", end="\n" if args.write else "")
    if sweep.interrupted:
        print(f"specserve: interrupted: {partial(plan, sweep)}.", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


def toml_of(plan: Plan, sweep: Sweep, advised: Recommendation) -> str:
    found_by = f"Found by `specserve bench sweep`{', ' + partial(plan, sweep) if sweep.interrupted else ''}."
    config = with_setting(plan.config, advised.setting, plan.drafters)
    return engine_toml(config, f"{found_by}\n{fill(advised.why, COMMENT_WIDTH)}")


def print_all(plan: Plan, sweep: Sweep, advised: Recommendation | None) -> None:
    rounds = f"median of {sweep.num_rounds} rounds" if sweep.num_rounds > 1 else "one round"
    title = f"{plan.config.model}: output tokens per second with so many requests at once, {rounds}"
    print_table(
        f"{title}; {partial(plan, sweep)}" if sweep.interrupted else title, columns(plan), rate_rows(plan, sweep)
    )
    if advised is not None:
        print_table("one load alone", load_columns(), load_rows(sweep, advised))
        console().print(advised.why, soft_wrap=True)
    for line in notes(sweep, advised):
        console().print(line, soft_wrap=True)


def result_of(plan: Plan, sweep: Sweep, advised: Recommendation | None, toml: str | None) -> Result:
    chance = noise(samples(sweep.found))
    loads = [
        Load(
            concurrency=each.cell.concurrency,
            temperature=each.cell.temperature,
            recommended=each.setting.drafters,
            output_tokens_per_second=each.rate,
            fastest=each.best.drafters,
            fastest_tokens_per_second=each.best_rate,
            noise=chance.get(each.cell),
        )
        for each in (advised.loads if advised else ())
    ]
    runs = [
        Row(
            round=one.round,
            drafters=one.setting.drafters,
            concurrency=one.cell.concurrency,
            temperature=one.cell.temperature,
            summary=one.summary,
        )
        for one in sweep.found
    ]
    return Result(
        model=plan.config.model,
        interrupted=sweep.interrupted,
        recommended=advised.setting.drafters if advised else None,
        why=advised.why if advised else "",
        loads=loads,
        runs=runs,
        toml=toml,
    )
