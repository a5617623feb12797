"""Waiting as a client feels it: the first token, and gaps between tokens while a 2,000-token prompt joins.

Eight requests decode; a long prompt joins; the gaps counted are those of the eight that end between its
arrival and its first token. With chunked prefill and without, in turn, each on an engine of its own.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import percentile
from benchmarks.lib.workload import DTYPE, PROMPT_LEN, demo_engine, greedy, prompts, serve_all

if TYPE_CHECKING:
    from specserve.engine.engine import Engine
    from specserve.types import GenerateRequest

NUM_DECODING, LONG = 8, 2000
STEPS_BEFORE = 24


class Joined(NamedTuple):
    """Seconds of one round. `quiet`: gaps before the long prompt came; `during`: until its first token."""

    quiet: list[float]
    during: list[float]
    first_token: float


def run(options: Options) -> Result:
    engines = {
        "chunked": demo_engine(options, chunked_prefill=True),
        "whole": demo_engine(options, chunked_prefill=False),
    }
    tokenizer = engines["chunked"].tokenizer
    short = prompts(tokenizer, NUM_DECODING, PROMPT_LEN)
    long = greedy("long", prompts(tokenizer, 1, LONG)[0], 2)
    decoding = [greedy(f"decoding-{i}", prompt, 400) for i, prompt in enumerate(short)]
    rounds: dict[str, list[Joined]] = {name: [] for name in engines}
    first: list[float] = []
    for number in range(options.rounds(5, 1) + 1):
        for name, assembled in engines.items():
            joined = join(assembled.engine, decoding, long)
            if number:
                rounds[name].append(joined)
        if number:
            first.append(serve_all(engines["chunked"].engine, [greedy("first", short[0], 1)]).seconds)
    rows: list[tuple[str, ...]] = [
        (f"first token, {PROMPT_LEN}-token prompt, idle engine", ms(median(first)), "", "", "")
    ]
    rows += [row_of(name, taken) for name, taken in rounds.items()]
    p99 = {name: percentile([gap for one in taken for gap in one.during], 0.99) for name, taken in rounds.items()}
    raw = {f"{name}, gaps while joining": [g for one in taken for g in one.during] for name, taken in rounds.items()}
    raw |= {f"{name}, gaps before": [g for one in taken for g in one.quiet] for name, taken in rounds.items()}
    return Result(
        title=f"milliseconds; {NUM_DECODING} requests decode while a {LONG}-token prompt joins, {DTYPE}",
        columns=("what", "first token", "p50 gap before", "p50 gap joining", "p99 gap joining"),
        rows=rows,
        checks=[Check("p99 gap, whole / chunked prefill", p99["whole"] / p99["chunked"], 1.0, False, "x")],
        notes=[f"{engines['chunked'].config.max_num_batched_tokens} rows per step, {options.threads} threads."],
        raw=raw | {"first token": first},
    )


def row_of(name: str, taken: list[Joined]) -> tuple[str, ...]:
    quiet = [gap for one in taken for gap in one.quiet]
    during = [gap for one in taken for gap in one.during]
    first = median(one.first_token for one in taken)
    label = f"{LONG}-token prompt joins, prefill {name}"
    return label, ms(first), ms(median(quiet)), ms(median(during)), ms(percentile(during, 0.99))


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def join(engine: Engine, decoding: list[GenerateRequest], long: GenerateRequest) -> Joined:
    """One round; all requests are aborted at its end."""
    for request in decoding:
        engine.add(request)
    while any(r.num_generated == 0 for r in engine.requests.values()):
        engine.step()
    last: dict[str, float] = {}
    gaps: list[float] = []

    def step() -> set[str]:
        """Which requests got tokens; their gaps are noted."""
        outputs = engine.step()
        now = time.perf_counter()
        got = {output.request_id for output in outputs if output.tokens}
        gaps.extend(now - last[id] for id in got if id in last)
        last.update(dict.fromkeys(got, now))
        return got

    for _ in range(STEPS_BEFORE):
        step()
    quiet, gaps = gaps, []
    arrived = time.perf_counter()
    engine.add(long)
    while long.request_id not in step():
        pass
    first_token = time.perf_counter() - arrived
    for request_id in list(engine.requests):
        engine.abort(request_id)
    engine.check_integrity()
    return Joined(quiet, gaps, first_token)
