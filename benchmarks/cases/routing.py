"""Routing policies over 10 to 1,000 replicas, simulated with the step costs of this machine: hits and waiting times.

Conversations of six turns on average share the system prompts of half as many applications as there are replicas; a
cache holds 65,536 tokens. Nothing but the steps' costs is measured: see `benchmarks.lib.simulated_cluster`.
"""

from __future__ import annotations

import argparse
import time
from math import exp, log
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.lib.plot import Panel, Series, require_matplotlib, save_plot
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.simulated_cluster import Outcome, Workload, simulate
from benchmarks.lib.simulated_replica import TOKEN_BUDGET, StepCosts
from benchmarks.lib.simulated_routers import CacheAware, PowerOfTwo, RoundRobin, Specserve
from benchmarks.lib.workload import DTYPE, MODEL, demo_engine, greedy, prompts

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.lib.simulated_cluster import Router
    from specserve.engine.engine import Engine

SIZES = (10, 100, 1000)
CAPACITY = 4096
"""Blocks of a replica's cache: 65,536 tokens."""
SESSIONS_PER_REPLICA = 60
UTILISATION = 0.6
"""Of a replica whose prefixes are never cached."""
ROUTERS: dict[str, Callable[[int], Router]] = {
    "round robin": RoundRobin,
    "power of two": PowerOfTwo,
    "cache_aware of smg": CacheAware,
    "specserve-ray": lambda num_replicas: Specserve(num_replicas, CAPACITY),
}
OURS, THEIRS = "specserve-ray", "cache_aware of smg"
DECODING = 32


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks routing")
    parser.add_argument("--plot", type=Path, help="draw hits and waiting times to this file (needs matplotlib)")
    parser.add_argument("--sizes", type=int, nargs="+", help=f"numbers of replicas; default: {SIZES}")
    return parser


def run(options: Options) -> Result:
    args = arguments().parse_args(options.rest)
    if args.plot:
        require_matplotlib()
    sizes: list[int] = args.sizes or list(SIZES[:2] if options.quick else SIZES)
    costs = measure_costs(options)
    found = {
        (size, name): simulate(costs, size, CAPACITY, make(size), workload(size, costs))
        for size in sizes
        for name, make in ROUTERS.items()
    }
    if args.plot:
        save_plot(panels(sizes, found), args.plot)
    checks = [
        Check(f"hits of {size} replicas, of cache_aware's", ours.hit_rate / theirs.hit_rate, 1.0, False)
        for size in sizes
        for ours, theirs in [(found[size, OURS], found[size, THEIRS])]
    ]
    return Result(
        title=f"replicas of {MODEL}, {DTYPE}, {options.threads} threads; without caches {UTILISATION:.0%} busy",
        columns=("replicas", "router", "hits", "TTFT p50 ms", "TTFT p99 ms", "request p99 ms", "us per choice"),
        rows=[row(size, name, outcome) for (size, name), outcome in found.items()],
        checks=checks,
        notes=[
            f"a step takes {costs.base * 1e6:.0f} us + {costs.per_request * 1e6:.1f} us for each request that decodes "
            f"+ {costs.per_prompt_token * 1e6:.1f} us for each prompt token"
        ],
        raw={f"{size} replicas, {name}": list(outcome) for (size, name), outcome in found.items()},
    )


def row(size: int, name: str, outcome: Outcome) -> tuple[str, ...]:
    waits = (outcome.first_token_p50, outcome.first_token_p99, outcome.request_p99)
    in_ms = (f"{seconds * 1e3:.1f}" for seconds in waits)
    return (str(size), name, f"{outcome.hit_rate:.3f}", *in_ms, f"{outcome.seconds_per_choice * 1e6:.0f}")


def workload(num_replicas: int, costs: StepCosts) -> Workload:
    """As many conversations as keep the replicas UTILISATION busy where nothing is cached and eight requests decode at
    once."""
    one = Workload(1, 1.0, 1)
    turn_tokens = one.mean_turn_tokens + one.mean_answer_tokens
    prompt_tokens = one.system_tokens + one.mean_turns / 2 * turn_tokens
    decode = one.mean_answer_tokens * costs.step(8, 0) / 8
    seconds = one.mean_turns * (prompt_tokens * costs.per_prompt_token + decode)
    return Workload(
        num_sessions=num_replicas * SESSIONS_PER_REPLICA,
        sessions_per_second=UTILISATION * num_replicas / seconds,
        num_applications=max(4, num_replicas // 2),
    )


def measure_costs(options: Options) -> StepCosts:
    """Of the demo model: steps of one and of many decoding requests, and of a full chunk of a prompt."""
    assembled = demo_engine(options, draft_tokens=0)
    engine, rounds = assembled.engine, options.rounds(40, 10)
    texts = prompts(assembled.tokenizer, DECODING + rounds, TOKEN_BUDGET)
    one = median(step_seconds(engine, texts[:1], rounds))
    many = median(step_seconds(engine, texts[:DECODING], rounds))
    chunk = median(first_step_seconds(engine, text) for text in texts[DECODING:])
    per_request = max(0.0, (many - one) / (DECODING - 1))
    base = one - per_request
    return StepCosts(base, per_request, (chunk - base) / TOKEN_BUDGET)


def step_seconds(engine: Engine, texts: list[tuple[int, ...]], rounds: int) -> list[float]:
    for number, text in enumerate(texts):
        engine.add(greedy(f"r{number}", text[:64], rounds + len(texts) * 2))
    while any(request.num_generated < 2 for request in engine.requests.values()):
        engine.step()
    seconds = [timed_step(engine) for _ in range(rounds)]
    while engine.has_work:
        engine.step()
    return seconds


def first_step_seconds(engine: Engine, text: tuple[int, ...]) -> float:
    engine.add(greedy("prompt", text, 1))
    seconds = timed_step(engine)
    assert not engine.has_work, "a chunk has the whole prompt"
    return seconds


def timed_step(engine: Engine) -> float:
    began = time.perf_counter()
    engine.step()
    return time.perf_counter() - began


def panels(sizes: list[int], found: dict[tuple[int, str], Outcome]) -> list[Panel]:
    values: dict[str, Callable[[Outcome], float]] = {
        "prompt tokens from caches": lambda outcome: outcome.hit_rate,
        "TTFT p99, ms": lambda outcome: outcome.first_token_p99 * 1e3,
    }
    return [
        Panel(title, [series(name, {size: value(found[size, name]) for size in sizes}) for name in ROUTERS])
        for title, value in values.items()
    ]


def series(name: str, points: dict[int, float]) -> Series:
    """With straight lines between the points."""

    def between(n: float) -> float:
        known = sorted(points)
        left = max([size for size in known if size <= n], default=known[0])
        right = min([size for size in known if size >= n], default=known[-1])
        if left == right:
            return points[left]
        share = log(n / left) / log(right / left)
        return exp(log(points[left]) * (1 - share) + log(points[right]) * share)

    return Series(name, points, between)
