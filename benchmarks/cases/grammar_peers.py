"""Structured output in specserve against vLLM's CPU build: the case grammar's records, with and without the schema.

Owns the flags, the rounds and the table. Every engine is a process of its own; they take turns, job by job. Only steps
in which all requests run are timed, in both engines by the same code.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from itertools import islice
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from benchmarks.cases.peers import versions
from benchmarks.lib.records import COUNTS, TEMPERATURES
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.workload import DTYPE, MODEL, PROMPT_LEN, prompts
from benchmarks.peers.engines import TARGETS, Settings, installed
from benchmarks.peers.structured import BESIDE, FORCED, MASKS, VARIANTS, Answered, Engines, Texts, jobs_of
from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specserve.protocols import Tokenizer

WARM_UP = 8
"""Requests of each engine before the first round."""


Answers: TypeAlias = "dict[str, list[Answered]]"
"""By engine that did not crash, of every round."""


class Row(NamedTuple):
    """All engines at one temperature and number of concurrent requests."""

    temperature: float
    num_requests: int
    free: Answers
    structured: Answers
    """Under the schema."""

    @property
    def name(self) -> str:
        return f"{f'sampled at {self.temperature}' if self.temperature else 'greedy'}, {self.num_requests} concurrent"

    @property
    def ratios(self) -> dict[str, float]:
        """By engine, throughput under the schema over that of the vLLM it is compared with."""
        return {
            name: speed(answers) / speed(self.structured[VARIANTS[name].against])
            for name, answers in self.structured.items()
            if VARIANTS[name].against in self.structured
        }

    def texts(self, engine: str) -> Texts:
        total = Texts()
        for one in self.structured[engine]:
            total = total.plus(one.texts)
        return total


def speed(answers: list[Answered]) -> float:
    return median(one.throughput for one in answers)


class Flags(NamedTuple):
    counts: list[int]
    temperatures: list[float]
    rounds: int


def flags_of(options: Options) -> Flags:
    parser = argparse.ArgumentParser(prog="python -m benchmarks grammar_peers", description="Flags of this benchmark.")
    parser.add_argument("--counts", type=int, nargs="+", default=list(COUNTS), help="concurrent requests")
    parser.add_argument("--temperatures", type=float, nargs="+", default=list(TEMPERATURES))
    parser.add_argument("--rounds", type=int, default=options.rounds(3, 1))
    args = parser.parse_args(options.rest)
    return Flags(args.counts, args.temperatures, args.rounds)


def run(options: Options) -> Result:
    flags = flags_of(options)
    if "vllm" not in installed():
        return result([], options, ["vLLM is not installed. `python -m benchmarks.peers.make_peers vllm` does it."])
    tokenizer = HfTokenizer.from_dir(locate_model(MODEL))
    with closing(Engines(Settings(MODEL, options.threads), tokenizer)) as engines:
        rows = list(measure(flags, engines, tokenizer))
    crashed = [f"{name} crashed: {error}" for name, error in engines.errors.items()]
    return result(rows, options, [f"vLLM: {versions('vllm')}", *crashed, *invalid_texts(rows)])


def measure(flags: Flags, engines: Engines, tokenizer: Tokenizer) -> Iterator[Row]:
    needed = WARM_UP + len(flags.temperatures) * flags.rounds * sum(flags.counts)
    windows = iter([list(window) for window in prompts(tokenizer, needed, PROMPT_LEN)])
    for job in jobs_of(list(islice(windows, WARM_UP)), flags.temperatures[0]):
        engines.answers(job)
    for temperature in flags.temperatures:
        for count in flags.counts:
            rounds = [
                [engines.answers(job) for job in jobs_of(list(islice(windows, count)), temperature)]
                for _ in range(flags.rounds)
            ]
            row = Row(temperature, count, *map(by_engine, zip(*rounds, strict=True)))
            print(f"   {row.name}: {', '.join(' '.join(cells(row, name)[1:4]) for name in row.structured)}", flush=True)
            yield row


def by_engine(rounds: Sequence[dict[str, Answered]]) -> Answers:
    return {name: [answers[name] for answers in rounds] for name in rounds[-1]}


def result(rows: list[Row], options: Options, notes: list[str]) -> Result:
    return Result(
        title=f"structured output, demo model, {DTYPE}, {options.threads} threads; tokens/s where all requests decode",
        columns=("workload", "engine", "no schema", "schema", "schema / none", "/ vLLM's", "valid, cut off, invalid"),
        rows=[cells(row, name) for row in rows for name in row.structured],
        checks=[check for row in rows for check in checks(row)],
        notes=notes,
        raw={
            f"{row.name}, {name}, {kind}": [one.throughput for one in each]
            for row in rows
            for kind, answers in (("free", row.free), ("structured", row.structured))
            for name, each in answers.items()
        },
    )


def cells(row: Row, name: str) -> tuple[str, ...]:
    free, structured = speed(row.free[name]), speed(row.structured[name])
    of_vllm = f"{row.ratios[name]:.2f}x" if name in row.ratios else "-"
    texts = row.texts(name)
    judged = f"{texts.num_valid}, {texts.num_cut}, {len(texts.invalid)}"
    return row.name, name, f"{free:.0f}", f"{structured:.0f}", f"{structured / free:.2f}x", of_vllm, judged


def invalid_texts(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        for name in row.structured:
            for text in row.texts(name).invalid:
                yield f"{row.name}, {name}, invalid: {text!r}"


def checks(row: Row) -> Iterator[Check]:
    for name in (FORCED, BESIDE):
        if name in row.ratios:
            yield Check(f"{row.name}, {name} / {VARIANTS[name].against}", row.ratios[name], TARGETS["vllm"], False, "x")
    for name in (MASKS, FORCED, BESIDE):
        if name in row.structured:
            yield Check(f"{row.name}, {name}, invalid texts", len(row.texts(name).invalid), 0, True)
