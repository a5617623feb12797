"""The replay benchmark: which drafters replay which traces at which budgets.

Owns its flags and the order of runs; `benchmarks.replay.tables` owns what is printed.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.report import Options, Result
from benchmarks.replay import ngram
from benchmarks.replay.archives import SetupError
from benchmarks.replay.tables import Run, calibration_table, efficiency_table, main_table, raw_numbers
from benchmarks.replay.texts import KINDS
from benchmarks.replay.traces import digest, make_traces, read_traces
from specserve_bench.replay.harness import DrafterVariant, replay_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specserve_bench.replay.trace import Trace

DRAFTERS = ("arctic", "trie", "ngram")
QUICK_TRACES = 2
"""Per kind."""


class Selection(NamedTuple):
    """What the benchmark's own flags selected."""

    budgets: list[int]
    drafters: list[str]
    kinds: list[str]
    folder: Path | None


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks replay", description="Flags of the replay benchmark.")
    parser.add_argument("--budgets", type=positive, nargs="+", default=[8, 16, 32], help="nodes of a draft at most")
    parser.add_argument("--drafters", nargs="+", choices=DRAFTERS, default=list(DRAFTERS))
    parser.add_argument(
        "--kinds", nargs="+", default=[], metavar="KIND", help=f"default: all; built in: {' '.join(KINDS)}"
    )
    parser.add_argument(
        "--traces", dest="folder", type=Path, metavar="DIR",
        help="replay the texts of DIR/*.jsonl, an object of name, kind, prompt and output a line",
    )  # fmt: skip
    return parser


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a budget is a whole number above 0, not {text!r}.")
    return int(text)


def run(options: Options) -> Result:
    selection = Selection(**vars(arguments().parse_args(options.rest)))
    try:
        return measure(selection, options)
    except SetupError as error:
        raise SystemExit(f"replay: {error}") from error


def measure(selection: Selection, options: Options) -> Result:
    variants = [variant for drafter in selection.drafters for variant in variants_of(drafter)]
    traces = select_traces(selection, options)
    runs = [run_of(variant, traces, budget) for budget in selection.budgets for variant in variants]
    sweep = list(min_survival_sweep(traces, selection.budgets)) if "ngram" in selection.drafters else []
    details = [calibration_table(runs)]
    if sweep:
        details.append(efficiency_table(sweep, [run for run in runs if run.variant.name == "arctic"]))
    columns, rows = main_table(runs)
    return Result(
        title=f"drafters on {len(traces)} recorded texts ({digest(traces)}): "
        "mean acceptance length (drafted per accepted node)",
        columns=columns,
        rows=rows,
        notes=[
            "cold: a new drafter for each trace. warm: one for all traces, whose kinds alternate. "
            "cold, statistics kept: drafts from the request's own text, acceptance statistics of all requests.",
            "us/step: propose and feed, one thread. trie is written in Python: its times are not SGLang's.",
            "us/prompt token: start and stop.",
        ],
        raw=raw_numbers([*runs, *(run for _, run in sweep)]),
        details="\n\n".join(details),
    )


def variants_of(drafter: str) -> list[DrafterVariant]:
    variants: list[DrafterVariant] = importlib.import_module(f"benchmarks.replay.{drafter}").variants()
    return variants


def select_traces(selection: Selection, options: Options) -> list[Trace]:
    if selection.folder is not None:
        traces = read_traces(selection.folder, selection.kinds)
    else:
        traces = make_traces(selection.kinds or KINDS)
    if not options.quick:
        return traces
    kinds = dict.fromkeys(trace.kind for trace in traces)
    return [trace for kind in kinds for trace in [t for t in traces if t.kind == kind][:QUICK_TRACES]]


def run_of(variant: DrafterVariant, traces: Sequence[Trace], budget: int) -> Run:
    return Run(variant, budget, list(replay_all(variant, traces, budget)))


def min_survival_sweep(traces: Sequence[Trace], budgets: Sequence[int]) -> Iterator[tuple[float, Run]]:
    """The ngram drafter by budget, `min_survival` and setting."""
    for budget in budgets:
        for min_survival in ngram.MIN_SURVIVALS:
            for variant in ngram.variants(min_survival):
                yield min_survival, run_of(variant, traces, budget)
