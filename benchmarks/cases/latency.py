"""Latency as a client sees it: TTFT, and inter-token latency (ITL) while a 2,000-token prompt joins.

Eight requests decode; a long prompt joins. Counted are the eight's inter-token latencies that end between its arrival
and its first token. With chunked prefill and without, alternating, each on an engine of its own.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.workload import DTYPE, PROMPT_LEN, demo_engine, greedy, prompts, serve_all
from specserve_bench.figures.distribution import percentile

if TYPE_CHECKING:
    from specserve.engine.engine import Engine
    from specserve.types import GenerateRequest

NUM_DECODING, LONG = 8, 2000
STEPS_BEFORE = 24


class Joined(NamedTuple):
    """One round, in seconds. `itl_before`: before the long prompt arrives; `itl_joining`: until its first token."""

    itl_before: list[float]
    itl_joining: list[float]
    ttft: float


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
    ttft: list[float] = []
    for number in range(options.rounds(5, 1) + 1):
        for name, assembled in engines.items():
            joined = join(assembled.engine, decoding, long)
            if number:
                rounds[name].append(joined)
        if number:
            ttft.append(serve_all(engines["chunked"].engine, [greedy("first", short[0], 1)]).seconds)
    rows: list[tuple[str, ...]] = [(f"{PROMPT_LEN}-token prompt, idle engine", ms(median(ttft)), "", "", "")]
    rows += [row_of(name, joined) for name, joined in rounds.items()]
    joining = {name: [itl for one in joined for itl in one.itl_joining] for name, joined in rounds.items()}
    before = {name: [itl for one in joined for itl in one.itl_before] for name, joined in rounds.items()}
    p99 = {name: percentile(itls, 99) for name, itls in joining.items()}
    return Result(
        title=f"milliseconds; {NUM_DECODING} requests decode while a {LONG}-token prompt joins, {DTYPE}",
        columns=("what", "TTFT", "p50 ITL before", "p50 ITL joining", "p99 ITL joining"),
        rows=rows,
        checks=[Check("p99 ITL, whole / chunked prefill", p99["whole"] / p99["chunked"], 1.0, False, "x")],
        notes=[f"{engines['chunked'].config.max_num_batched_tokens} rows per step, {options.threads} threads."],
        raw={f"{name}, ITL joining": itls for name, itls in joining.items()}
        | {f"{name}, ITL before": itls for name, itls in before.items()}
        | {"TTFT": ttft},
    )


def row_of(name: str, rounds: list[Joined]) -> tuple[str, ...]:
    before = [itl for one in rounds for itl in one.itl_before]
    joining = [itl for one in rounds for itl in one.itl_joining]
    ttft = median(one.ttft for one in rounds)
    label = f"{LONG}-token prompt joins, {name} prefill"
    return label, ms(ttft), ms(median(before)), ms(median(joining)), ms(percentile(joining, 99))


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def join(engine: Engine, decoding: list[GenerateRequest], long: GenerateRequest) -> Joined:
    """One round; all requests are aborted at its end."""
    for request in decoding:
        engine.add(request)
    while any(r.num_generated == 0 for r in engine.requests.values()):
        engine.step()
    last: dict[str, float] = {}
    itls: list[float] = []

    def step() -> set[str]:
        """The requests that got tokens."""
        outputs = engine.step()
        now = time.perf_counter()
        served = {output.request_id for output in outputs if output.tokens}
        itls.extend(now - last[id] for id in served if id in last)
        last.update(dict.fromkeys(served, now))
        return served

    for _ in range(STEPS_BEFORE):
        step()
    itl_before, itls = itls, []
    arrived = time.perf_counter()
    engine.add(long)
    while long.request_id not in step():
        pass
    ttft = time.perf_counter() - arrived
    for request_id in list(engine.requests):
        engine.abort(request_id)
    engine.check_integrity()
    return Joined(itl_before, itls, ttft)
