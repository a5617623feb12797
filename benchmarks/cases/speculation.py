"""Requests with n-gram speculation (`--plugin ngram`) against the same without, in output tokens per second.

Greedy: one request that edits a file of its prompt, so that the output repeats the file. The speed-up is at most the
mean acceptance length, which it reaches if drafting and verification cost nothing. Sampled: text that does not repeat,
where few drafts are accepted and speculation must not cost anything.

*Fresh* engines are new in every round: the index is empty and no acceptance statistics are learned. *Warm* engines
serve all rounds, after one that is not counted. No round repeats prompts and seeds, or the index would know the
outputs. Only decoding is timed; the engines of a round alternate every SLICE_STEPS steps.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.alternating import decode_in_turns
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import spread
from benchmarks.lib.workload import DTYPE, MANY, PROMPT_LEN, demo_engine, edit_prompt, prompts, seeded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.lib.alternating import Engines, MakeRequests
    from benchmarks.lib.decoding import Decoded
    from specserve.protocols import Tokenizer
    from specserve.types import GenerateRequest

EFFICIENCY_TARGET, SAMPLED_TARGET = 0.9, 0.98
TEMPERATURES, COUNTS = (0.8, 1.0), (1, 8, MANY)


class Workload(NamedTuple):
    name: str
    make_requests: MakeRequests
    greedy: bool

    def check(self, label: str, speedup: float, length: float) -> Check:
        if self.greedy:
            what = f"{label}, speed-up / mean acceptance length"
            return Check(what, speedup / length, EFFICIENCY_TARGET, False)
        return Check(f"{label}, speed-up", speedup, SAMPLED_TARGET, False, "x")


def run(options: Options) -> Result:
    plain, ngram = demo_engine(options), demo_engine(options, plugins=("ngram",))
    engines: Engines = {
        "fresh plain": lambda: demo_engine(options).engine,
        "fresh ngram": lambda: demo_engine(options, plugins=("ngram",)).engine,
        "warm plain": lambda: plain.engine,
        "warm ngram": lambda: ngram.engine,
    }
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    raw: dict[str, list[float]] = {}
    for workload in workloads(plain.tokenizer, options):
        measured = decode_in_turns(engines, workload.make_requests, options.rounds(5, 1))
        for state in ("fresh", "warm"):
            row, check = compare(workload, state, measured)
            rows.append(row)
            checks.append(check)
        raw |= {f"{workload.name} {who}": [one.throughput for one in rounds] for who, rounds in measured.items()}
    return Result(
        title=f"n-gram speculation against plain decoding, demo model, {DTYPE}, {options.threads} threads; tokens/s",
        columns=("workload", "plain", "ngram", "min..max", "speed-up", "acceptance length", "speed-up / length"),
        rows=rows,
        checks=checks,
        raw=raw,
    )


def compare(workload: Workload, state: str, measured: dict[str, list[Decoded]]) -> tuple[tuple[str, ...], Check]:
    plain, ngram = ([one.throughput for one in measured[f"{state} {who}"]] for who in ("plain", "ngram"))
    # The ratio is taken round by round, since the texts of two rounds differ in speed.
    speedup = median(b / a for a, b in zip(plain, ngram, strict=True))
    length = sum(one.mean_acceptance_length for one in measured[f"{state} ngram"]) / len(ngram)
    label = f"{workload.name}, {state}"
    row = (
        label, f"{median(plain):.0f}", f"{median(ngram):.0f}", spread(ngram), f"{speedup:.3f}x", f"{length:.2f}",
        f"{speedup / length:.2f}",
    )  # fmt: skip
    return row, workload.check(label, speedup, length)


def workloads(tokenizer: Tokenizer, options: Options) -> Iterator[Workload]:
    rounds = options.rounds(5, 1) + 1
    files = prompts(tokenizer, rounds, 500)
    yield Workload(
        "edit, greedy, 1 request", lambda n: [seeded(f"e{n}", edit_prompt(tokenizer, files[n]), 0.0, n)], greedy=True
    )
    for temperature in TEMPERATURES:
        for count in COUNTS:
            texts = prompts(tokenizer, rounds * count, PROMPT_LEN)
            requests = partial(sampled, texts, count, temperature)
            yield Workload(f"sampled at {temperature}, {count} concurrent", requests, greedy=False)


def sampled(texts: list[tuple[int, ...]], count: int, temperature: float, n: int) -> list[GenerateRequest]:
    of_round = texts[n * count : (n + 1) * count]
    return [seeded(f"s{n}.{i}", prompt, temperature, 1000 * n + i) for i, prompt in enumerate(of_round)]
