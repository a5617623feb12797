"""The replay benchmark: which drafters replay which streams at which budgets.

Owns its command line and the order of runs; `tables` owns what is printed.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.report import Options, Result
from benchmarks.replay.archives import MaterialError
from benchmarks.replay.harness import Contender, replay_all
from benchmarks.replay.ngram import CUTS
from benchmarks.replay.ngram import contenders as ours_with
from benchmarks.replay.tables import Run, calibration_table, main_table, raw_figures, thrift_table
from benchmarks.replay.texts import KINDS
from benchmarks.replay.traces import digest, make_streams, read_streams

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.replay.texts import Stream

DRAFTERS = ("arctic", "trie", "ngram")
QUICK_STREAMS = 2


class Chosen(NamedTuple):
    """What the benchmark's own flags chose."""

    budgets: list[int]
    drafters: list[str]
    kinds: list[str]
    folder: Path | None


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks replay", description="Flags of the replay benchmark.")
    parser.add_argument("--budgets", type=positive, nargs="+", default=[8, 16, 32], help="nodes a draft may have")
    parser.add_argument("--drafters", nargs="+", choices=DRAFTERS, default=list(DRAFTERS))
    parser.add_argument("--kinds", nargs="+", default=[], metavar="KIND", help=f"default: all; ours: {' '.join(KINDS)}")
    parser.add_argument(
        "--streams", dest="folder", type=Path, metavar="DIR",
        help="replay the texts of DIR/*.jsonl, an object of name, kind, prompt and output a line",
    )  # fmt: skip
    return parser


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a budget is a whole number above 0, not {text!r}.")
    return int(text)


def run(options: Options) -> Result:
    chosen = Chosen(**vars(arguments().parse_args(options.rest)))
    try:
        return replayed(chosen, options)
    except MaterialError as error:
        raise SystemExit(f"replay: {error}") from error


def replayed(chosen: Chosen, options: Options) -> Result:
    contenders = [contender for name in chosen.drafters for contender in contenders_of(name)]
    streams = streams_of(chosen, options)
    runs = [run_of(contender, streams, budget) for budget in chosen.budgets for contender in contenders]
    cut_runs = list(thrift_runs(streams, chosen.budgets)) if "ngram" in chosen.drafters else []
    details = [calibration_table(runs)]
    if cut_runs:
        details.append(thrift_table(cut_runs, [run for run in runs if run.contender.name == "arctic"]))
    columns, rows = main_table(runs)
    return Result(
        title=f"drafters on {len(streams)} real texts taken as outputs ({digest(streams)}): "
        "mean accept length (drafted per accepted)",
        columns=columns,
        rows=rows,
        notes=[
            "cold: a fresh drafter for each stream. warm: one for all streams, which take turns by kind. "
            "cold, table kept: text of the own request alone, what was learned about matches stays.",
            "us: propose and feed of a step, in one thread. The trie is a model in Python: its times are not SGLang's.",
            "take-in: us per prompt token, in start and stop.",
        ],
        raw=raw_figures([*runs, *(run for _, run in cut_runs)]),
        details="\n\n".join(details),
    )


def contenders_of(drafter: str) -> list[Contender]:
    found: list[Contender] = importlib.import_module(f"benchmarks.replay.{drafter}").contenders()
    return found


def streams_of(chosen: Chosen, options: Options) -> list[Stream]:
    if chosen.folder is not None:
        streams = read_streams(chosen.folder, chosen.kinds)
    else:
        streams = make_streams(chosen.kinds or KINDS)
    if not options.quick:
        return streams
    kinds = dict.fromkeys(stream.kind for stream in streams)
    return [stream for kind in kinds for stream in [s for s in streams if s.kind == kind][:QUICK_STREAMS]]


def run_of(contender: Contender, streams: Sequence[Stream], budget: int) -> Run:
    return Run(contender, budget, list(replay_all(contender, streams, budget)))


def thrift_runs(streams: Sequence[Stream], budgets: Sequence[int]) -> Iterator[tuple[float, Run]]:
    """Our drafter at every cut of survival, by budget and setting."""
    for budget in budgets:
        for cut in CUTS:
            for contender in ours_with(cut):
                yield cut, run_of(contender, streams, budget)
