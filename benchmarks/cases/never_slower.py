"""Every drafter against plain decoding where it should help and where it cannot: does any of them ever cost speed?

Texts of the demo model: *edit* continues an edited copy of a file, *code* a file, *prose* a page of these docs, on
which it was not trained. Texts of SmolLM2 (`--model smollm2`, in bfloat16, where `make build/smollm2/config.json` has
made it): *edit*, *chat* answers questions that its head was not trained on, *summary* sums up a page of these docs.
Each greedily and sampled at temperature 1, by 1, 8 and 32 requests at once, with n-gram drafts, with the model's
EAGLE-3 head, and with both; the plugin adaptive plans. *fixed* drafts with both and verifies four draft tokens of each
request in every step, whatever they bring: what adaptive is there for.

As many requests run at once all the time: where one ends the next begins, as on a busy server. Steps with prompts are
not timed. All engines are warm and serve the same requests round by round in turns, forwards and backwards. Each round
is compared with *plain* and *plain again*, two engines without drafters. Their distance shows what a comparison is
worth: where an engine lies in memory changes its speed by some percent. So both drafters are also compared within one
engine (*itself*): with the same requests, which decline speculation. A round's requests share no n-gram index with
others, which may have the same answers.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import cycle, islice
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from benchmarks.lib.decoding import decode_steadily
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.subjects import EDIT, SUBJECTS
from benchmarks.lib.timing import spread
from benchmarks.lib.workload import (
    DTYPE,
    MANY,
    NUM_TOKENS,
    demo_engine,
    seeded,
)
from specserve.types import SpeculationParams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.lib.decoding import Decoded
    from benchmarks.lib.subjects import Subject
    from specserve.engine.assembly import Assembled
    from specserve.protocols import Tokenizer
    from specserve.types import GenerateRequest

PLAIN, AGAIN, MIX, DECLINED, FIXED = "plain", "plain again", "ngram + eagle", "mix, declined", "fixed"
DRAFTERS = {
    PLAIN: (),
    "ngram": ("ngram",),
    MIX: ("ngram", "eagle"),
    AGAIN: (),
    "eagle": ("eagle",),
    FIXED: ("ngram", "eagle"),
}
OTHERS = ("ngram", "eagle", FIXED)
FIXED_WIDTH = {"draft_tokens": 4, "max_draft_batch": MANY}
NO_SPECULATION = SpeculationParams(enabled=False)
TEMPERATURES, COUNTS = (0.0, 1.0), (1, 8, MANY)
NEVER_BELOW, EDITS_AT_LEAST = 0.98, 2.5
REQUESTS = {1: 6}
"""Of a round, for a number at once; else WAVES times as many."""
WAVES = 3


class Cell(NamedTuple):
    text: str
    temperature: float
    concurrent: int
    """Requests at once."""

    @property
    def label(self) -> str:
        return f"{self.text}, {'sampled at 1' if self.temperature else 'greedy'}, {self.concurrent} at once"

    @property
    def num_requests(self) -> int:
        """Of a round."""
        return REQUESTS.get(self.concurrent, WAVES * self.concurrent)

    @property
    def target(self) -> float:
        """Of the mix against plain decoding."""
        return EDITS_AT_LEAST if (self.text, self.temperature, self.concurrent) == (EDIT, 0.0, 1) else NEVER_BELOW


class Flags(NamedTuple):
    subject: Subject
    engines: Sequence[str]
    """Of `DRAFTERS`; plain decoding and the mix are among them."""
    texts: Sequence[str]
    temperatures: Sequence[float]
    counts: Sequence[int]
    rounds: int
    num_tokens: int


def flags_of(options: Options) -> Flags:
    parser = argparse.ArgumentParser(prog="python -m benchmarks never_slower")
    parser.add_argument("--model", choices=list(SUBJECTS), default="demo")
    parser.add_argument(
        "--beside", nargs="*", choices=OTHERS, default=list(OTHERS), help="engines beside plain and mix"
    )
    parser.add_argument(
        "--texts", nargs="+", choices=sorted({text for each in SUBJECTS.values() for text in each.texts})
    )
    parser.add_argument("--temperatures", nargs="+", type=float, choices=TEMPERATURES, default=list(TEMPERATURES))
    parser.add_argument("--counts", nargs="+", type=int, default=list(COUNTS), help="concurrent requests")
    parser.add_argument("--rounds", type=int, default=options.rounds(5, 1))
    args = parser.parse_args(options.rest)
    subject = SUBJECTS[args.model]
    texts = args.texts or list(subject.texts)
    if unknown := [text for text in texts if text not in subject.texts]:
        parser.error(f"--texts of {args.model} are {', '.join(subject.texts)}; got {', '.join(unknown)}.")
    engines = [name for name in DRAFTERS if name not in OTHERS or name in args.beside]
    return Flags(subject, engines, texts, args.temperatures, args.counts, args.rounds, options.rounds(NUM_TOKENS, 80))


def run(options: Options) -> Result:
    flags = flags_of(options)
    subject = flags.subject
    engines = {name: engine_of(options, subject, name) for name in flags.engines}
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    raw: dict[str, list[float]] = {}
    for cell in cells(flags):
        make = partial(
            requests_of, cell, texts_of(subject, cell, engines[PLAIN].tokenizer, flags.rounds), flags.num_tokens
        )
        measured = serve_in_turns(engines, make, cell.concurrent, flags.rounds)
        ratios = {name: against_plain(measured, name) for name in flags.engines if name != PLAIN}
        of_itself = within_one_engine(measured)
        rows.append(row_of(cell, measured, ratios, of_itself))
        checks.append(Check(f"{cell.label}: {MIX} / plain", median(ratios[MIX]), cell.target, False, "x"))
        checks.append(Check(f"{cell.label}: {MIX} / itself, declined", median(of_itself), cell.target, False, "x"))
        raw |= {f"{cell.label} {name}": [one.throughput for one in each] for name, each in measured.items()}
    return Result(
        title=f"Drafters against plain decoding, {subject.title}, {DTYPE}, {options.threads} threads",
        columns=(
            "cell",
            "plain tok/s",
            *(name for name in flags.engines if name != PLAIN),
            "mix, min..max",
            "mix / itself",
            "min..max",
            "best",
        ),
        rows=rows,
        checks=checks,
        raw=raw,
    )


def serve_in_turns(
    engines: dict[str, Assembled], make: Callable[[int], list[GenerateRequest]], at_once: int, rounds: int
) -> dict[str, list[Decoded]]:
    """By what is compared, every round; one that warms up is left out."""
    turns = dict(contenders(engines))
    measured: dict[str, list[Decoded]] = {name: [] for name in turns}
    for n in range(rounds + 1):
        for name in list(turns)[:: 1 if n % 2 else -1]:
            requests = [declined(each) for each in make(n)] if name == DECLINED else make(n)
            measured[name].append(decode_steadily(turns[name].engine, requests, at_once))
    return {name: values[1:] for name, values in measured.items()}


def contenders(engines: dict[str, Assembled]) -> Iterator[tuple[str, Assembled]]:
    """The engines in turn; that with both drafters twice in a row, so that little changes between the two."""
    for name, engine in engines.items():
        yield name, engine
        if name == MIX:
            yield DECLINED, engine


def engine_of(options: Options, subject: Subject, name: str) -> Assembled:
    tables = {"eagle": subject.eagle} if "eagle" in DRAFTERS[name] else {}
    fixed = FIXED_WIDTH if name == FIXED else {}
    return demo_engine(
        options, model=subject.model, plugins=DRAFTERS[name], plugin_options=tables, kv_memory="256M", **fixed
    )


def cells(flags: Flags) -> Iterator[Cell]:
    for text in flags.texts:
        for temperature in flags.temperatures:
            for count in flags.counts:
                yield Cell(text, temperature, count)


def texts_of(subject: Subject, cell: Cell, tokenizer: Tokenizer, rounds: int) -> list[tuple[int, ...]]:
    """Prompts for all rounds and the one that warms up. Where there are too few, they come again."""
    count = cell.num_requests * (rounds + 1)
    return list(islice(cycle(subject.texts[cell.text](tokenizer, count)), count))


def requests_of(cell: Cell, texts: list[tuple[int, ...]], num_tokens: int, n: int) -> list[GenerateRequest]:
    of_round = texts[n * cell.num_requests : (n + 1) * cell.num_requests]
    return [
        msgspec.structs.replace(
            seeded(f"r{n}.{i}", prompt, cell.temperature, 1000 * n + i, num_tokens), cache_salt=f"{cell.label} {n}"
        )
        for i, prompt in enumerate(of_round)
    ]


def declined(request: GenerateRequest) -> GenerateRequest:
    """Without drafts, and without blocks that were cached with them."""
    return msgspec.structs.replace(request, speculation=NO_SPECULATION, cache_salt=f"{request.cache_salt} {DECLINED}")


def within_one_engine(measured: dict[str, list[Decoded]]) -> list[float]:
    """The mix by itself where requests decline speculation, round by round."""
    return [one.throughput / other.throughput for one, other in zip(measured[MIX], measured[DECLINED], strict=True)]


def against_plain(measured: dict[str, list[Decoded]], name: str) -> list[float]:
    """Round by round, since the texts of two rounds differ in speed: of the mean of both plain engines, or of the
    first."""
    plain = [
        one.throughput if name == AGAIN else (one.throughput + other.throughput) / 2
        for one, other in zip(measured[PLAIN], measured[AGAIN], strict=True)
    ]
    return [each.throughput / of_plain for each, of_plain in zip(measured[name], plain, strict=True)]


def row_of(
    cell: Cell, measured: dict[str, list[Decoded]], ratios: dict[str, list[float]], of_itself: list[float]
) -> tuple[str, ...]:
    plain = median(one.throughput for one in measured[PLAIN])
    best = max((name for name in ratios if name not in (FIXED, AGAIN)), key=lambda name: median(ratios[name]))
    medians = (f"{median(each):.3f}x" for each in ratios.values())
    return (
        cell.label, f"{plain:.0f}", *medians, spread(ratios[MIX]), f"{median(of_itself):.3f}x", spread(of_itself), best
    )  # fmt: skip
