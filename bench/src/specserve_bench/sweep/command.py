"""The flags of `specserve bench sweep`, and what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specserve_bench.given.numbers import positive

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction

    from specserve_bench.sweep.measure import Plan

DESCRIPTION = """\
Serve a model without drafters, with each drafter and with all of them, under several loads, and say which setting to
use. Drafters are those of --plugin and --set, by default ngram. All flags of `specserve serve` for the engine apply.
"""


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser("sweep", help="find the fastest setting for a model", description=DESCRIPTION)
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="a directory, a known name or a hub id; default: demo"
    )
    group = parser.add_argument_group("sweep")
    group.add_argument(
        "--concurrency",
        nargs="+",
        type=positive,
        default=[1, 8, 32],
        metavar="N",
        help="requests at once; default: 1 8 32",
    )
    group.add_argument(
        "--temperature", nargs="+", type=float, default=[0.0, 0.8], metavar="T", help="of sampling; default: 0 0.8"
    )
    group.add_argument("--rounds", type=positive, default=3, metavar="N", help="of which the median counts; default: 3")
    group.add_argument(
        "--most-rounds", type=positive, metavar="N",
        help="so many where chance decides what is recommended; default: twice as many as --rounds",
    )  # fmt: skip
    group.add_argument("--max-tokens", type=positive, default=128, metavar="N", help="of an answer; default: 128")
    group.add_argument("--api", choices=("completions", "chat"), default="completions", help="default: completions")
    group.add_argument(
        "--prompts", nargs="+", metavar="KIND|FILE", default=["code", "edit", "chat", "json"],
        help="as of `bench serve`; default: code edit chat json",
    )  # fmt: skip
    group.add_argument("--write", type=Path, metavar="FILE.toml", help="write the setting for `serve --config`")
    group.add_argument("--report", type=Path, metavar="FILE.html", help="write a report with plots")
    group.add_argument("--json", action="store_true", help="print JSON")
    from specserve_server.cli.flags import add_engine_flags  # who registers a command has it

    add_engine_flags(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from specserve_bench.output.files import check_files
    from specserve_bench.output.plots import require_matplotlib
    from specserve_bench.output.table import Progress
    from specserve_bench.served.server_process import ended_by_sigterm
    from specserve_bench.sweep.finish import finish
    from specserve_bench.sweep.measure import measure_all

    plan = plan_of(args)
    if args.report:
        require_matplotlib()
    check_files(args.write, args.report)
    with ended_by_sigterm(), Progress(plan.config.model) as progress:
        sweep = measure_all(plan, progress)
    return finish(args, plan, sweep)


def plan_of(args: Namespace) -> Plan:
    from specserve.engine.before_loading import check_before_loading
    from specserve_bench.given.drafters import candidates
    from specserve_bench.sweep.cells import Cell, settings_of
    from specserve_bench.sweep.measure import Plan
    from specserve_server.cli.layers import load_engine_config

    config = load_engine_config(args)
    check_before_loading(config)
    drafters = candidates(config)
    cells = [Cell(concurrency, temperature) for temperature in args.temperature for concurrency in args.concurrency]
    return Plan(
        config,
        drafters,
        settings_of(drafters),
        cells,
        args.rounds,
        args.most_rounds or 2 * args.rounds,
        args.api,
        tuple(args.prompts),
        args.max_tokens,
    )
