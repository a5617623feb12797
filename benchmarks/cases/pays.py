"""Whether n-gram speculation pays: the same requests with and without `--plugin ngram`, tokens per second.

Greedy: one request whose prompt is a file and the beginning of an edited copy of it; the output repeats the file.
The limit is the mean acceptance length, reached where drafting and verifying cost nothing. Sampled: text that
does not repeat, where a guess is rarely right and speculation must at least not cost anything. *Fresh*: every
round has new engines with and without ngram; the index is empty, nothing is learned, and memory is cold for both.
*Warm*: one engine of each kind serves all rounds, after one that does not count. Every round has prompts and seeds
of its own, or the index would know the answers from the round before. Timed is decoding: from the step in which
the last request got its first token on. The engines of a round take turns of some steps.
"""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import spread
from benchmarks.lib.workload import DTYPE, MANY, NUM_TOKENS, PROMPT_LEN, demo_engine, prompts
from specserve.types import GenerateRequest, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from specserve.engine.engine import Engine
    from specserve.types import RequestOutput

    Make = Callable[[int], list[GenerateRequest]]

GREEDY_SHARE, SAMPLED_RATIO = 0.9, 0.98
TEMPERATURES, COUNTS = (0.8, 1.0), (1, 8, MANY)
TURN = 20
"""Steps of one engine before it is the next one's turn, so that the machine's slow seconds hit all."""


def run(options: Options) -> Result:
    plain, ngram = demo_engine(options), demo_engine(options, plugins=("ngram",))
    engines = {
        "fresh plain": lambda: demo_engine(options).engine,
        "fresh ngram": lambda: demo_engine(options, plugins=("ngram",)).engine,
        "warm plain": lambda: plain.engine,
        "warm ngram": lambda: ngram.engine,
    }
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    raw: dict[str, list[float]] = {}
    for name, target, make in cases(plain.tokenizer, options):
        taken, lengths = race(engines, make, options.rounds(5, 1))
        for server in ("fresh", "warm"):
            without, using = taken[f"{server} plain"], taken[f"{server} ngram"]
            # round by round, since the texts of two rounds are of different speed
            ratio = median(n / p for n, p in zip(using, without, strict=True))
            length = sum(lengths[f"{server} ngram"]) / len(using)
            rows.append(
                (f"{name}, {server}", f"{median(without):.0f}", f"{median(using):.0f}", spread(using), f"{ratio:.3f}x",
                 f"{length:.2f}", f"{ratio / length:.2f}")
            )  # fmt: skip
            got = ratio / length if target == GREEDY_SHARE else ratio
            unit = " of the mean acceptance length" if target == GREEDY_SHARE else "x"
            checks.append(Check(f"{name}, {server}, ngram / plain", got, target, False, unit))
        raw |= {f"{name} {who}": values for who, values in taken.items()}
    return Result(
        title=f"n-gram speculation against plain decoding, demo model, {DTYPE}, {options.threads} threads",
        columns=("case", "plain tok/s", "ngram tok/s", "lowest..highest", "speed-up", "accepted", "share of limit"),
        rows=rows,
        checks=checks,
        raw=raw,
    )


def cases(tokenizer: Any, options: Options) -> Iterator[tuple[str, float, Make]]:
    """(name, target, requests of a round)."""
    rounds = options.rounds(5, 1) + 1
    files = prompts(tokenizer, rounds, 500)
    yield "edit, greedy, 1 request", GREEDY_SHARE, lambda n: [request(f"e{n}", edited(tokenizer, files[n]), 0.0, n)]
    for temperature in TEMPERATURES:
        for count in COUNTS:
            fresh = prompts(tokenizer, rounds * count, PROMPT_LEN)

            yield (
                f"sampled at {temperature}, {count} at once",
                SAMPLED_RATIO,
                partial(sampled, fresh, count, temperature),
            )


def sampled(fresh: list[tuple[int, ...]], count: int, temperature: float, n: int) -> list[GenerateRequest]:
    mine = fresh[n * count : (n + 1) * count]
    return [request(f"s{n}.{i}", prompt, temperature, 1000 * n + i) for i, prompt in enumerate(mine)]


def edited(tokenizer: Any, file: tuple[int, ...]) -> tuple[int, ...]:
    """A file, and the first fifth of it once more with one name changed: what follows is the rest of the file."""
    again = tokenizer.decode(list(file)).replace("self", "this")
    return (*file, *tokenizer.encode("\n\n# The same with another name:\n"), *tokenizer.encode(again)[: len(file) // 5])


def request(name: str, prompt: tuple[int, ...], temperature: float, seed: int) -> GenerateRequest:
    params = SamplingParams(temperature=temperature, max_tokens=NUM_TOKENS, ignore_eos=True, seed=seed)
    return GenerateRequest(request_id=name, prompt_token_ids=prompt, params=params)


def race(
    engines: dict[str, Callable[[], Engine]], make: Make, rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Tokens per second of each engine, and mean acceptance lengths, a warm-up round left out."""
    rates: dict[str, list[float]] = {name: [] for name in engines}
    lengths: dict[str, list[float]] = {name: [] for name in engines}
    for n in range(rounds + 1):
        sums = dict.fromkeys(engines, NOTHING)
        running = {name: decode(engine(), make(n)) for name, engine in engines.items()}
        while running:
            for name in list(running):
                part = next(running[name], None)
                if part is None:
                    del running[name]
                else:
                    sums[name] = Decoded(*(a + b for a, b in zip(sums[name], part, strict=True)))
        for name, got in sums.items():
            rates[name].append(got.num_tokens / got.seconds)
            lengths[name].append(got.num_tokens / got.num_outputs)
    return {name: values[1:] for name, values in rates.items()}, {name: values[1:] for name, values in lengths.items()}


class Decoded(NamedTuple):
    """Of some steps."""

    seconds: float
    num_tokens: int
    num_outputs: int
    """One per request and step."""


NOTHING = Decoded(0.0, 0, 0)


def decode(engine: Engine, requests: list[GenerateRequest]) -> Iterator[Decoded]:
    """Run them together to their end, some steps at a time, from when all have their first token."""
    for one in requests:
        engine.check(one)
        engine.add(one)
    begun: set[str] = set()
    while len(begun) < len(requests):
        begun |= {output.request_id for output in engine.step()}
    yield NOTHING
    while engine.has_work:
        engine.step()  # brings the weights back into the caches
        num_tokens = num_outputs = 0
        began = time.perf_counter()
        for _ in range(TURN - 1):
            outputs: list[RequestOutput] = engine.step()
            num_tokens += sum(len(output.tokens) for output in outputs)
            num_outputs += len(outputs)
            if not engine.has_work:
                break
        yield Decoded(time.perf_counter() - began, num_tokens, num_outputs)
