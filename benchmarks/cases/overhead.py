"""Engine overhead per step around a stub model, with 256 running greedy requests and with one.

Measured in `Engine.step` and through `AsyncEngine.submit`, in steady decoding, hashing and caching of full blocks
included. A window is a whole number of blocks long, so that every window has the same work.
"""

from __future__ import annotations

import asyncio
import cProfile
import time
from contextlib import aclosing
from statistics import median
from typing import TYPE_CHECKING, cast

import torch

from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.stub_engine import BLOCK_SIZE, as_assembled, stub_engine, stub_requests
from benchmarks.lib.timing import spread
from specserve.engine.async_engine import AsyncEngine

if TYPE_CHECKING:
    from specserve.engine.engine import Engine
    from specserve.plugins.host import PluginHost
    from specserve.types import GenerateRequest

MANY, TINY_VOCAB, DEMO_VOCAB = 256, 64, 8192
GRAPHS = ("none", "piecewise", "full")
ADDED_PER_REQUEST_TARGET, ADDED_TO_ONE_TARGET = 1.0, 15.0
"""Microseconds that graphs may add: per request and step of MANY requests, and to a step of one."""
PER_REQUEST_TARGET, ONE_TARGET = 12.0, 150.0
"""Microseconds: per request and step of MANY requests, and per step of one."""
SECONDS_PER_WINDOW = {MANY: 0.4, 1: 0.05}


def run(options: Options) -> Result:
    torch.set_num_threads(1)  # a second thread has no work and would only spin
    rounds = options.rounds(9, 3)
    raw: dict[str, list[float]] = {}
    for vocab_size in (TINY_VOCAB, DEMO_VOCAB):
        for count in (MANY, 1):
            raw[f"Engine.step, {count} requests, vocabulary {vocab_size}"] = sync_steps(count, vocab_size, rounds)
    for count in (MANY, 1):
        raw |= with_graphs(count, rounds)
    for count in (MANY, 1):
        raw[f"AsyncEngine, {count} requests, vocabulary {TINY_VOCAB}"] = asyncio.run(
            async_steps(count, TINY_VOCAB, rounds)
        )
    rows, checks = [], []
    for name, values in raw.items():
        count = 1 if ", 1 requests" in name else MANY
        step = median(values)
        rows.append((name, f"{step:.0f}", spread(values), f"{step / count:.2f}"))
        if name.endswith(f"vocabulary {TINY_VOCAB}"):
            target = ONE_TARGET if count == 1 else PER_REQUEST_TARGET
            checks.append(Check(f"{name}: per request and step", step / count, target, True, " us"))
    for count, target in ((MANY, ADDED_PER_REQUEST_TARGET * MANY), (1, ADDED_TO_ONE_TARGET)):
        plain = median(raw[graph_row(count, "none")])
        for mode in GRAPHS[1:]:
            added = median(raw[graph_row(count, mode)]) - plain
            checks.append(Check(f"{mode} graphs add to a step of {count}", added, target, True, " us"))
    return Result(
        title="engine overhead, microseconds per step around a stub model",
        columns=("what", "us per step", "min..max", "us per request"),
        rows=rows,
        checks=checks,
        notes=[
            f"{rounds} windows each, median; steady decoding, prompts of 600 to 615 tokens, blocks of {BLOCK_SIZE}.",
            f"A vocabulary of {DEMO_VOCAB} adds the argmax over precomputed logits, with one thread.",
        ],
        raw=raw,
        details=profile_steps() if options.profile else "",
    )


def graph_row(count: int, graphs: str) -> str:
    return f"Engine.step, {count} requests, graphs {graphs}"


def with_graphs(count: int, rounds: int) -> dict[str, list[float]]:
    """Microseconds per step of engines that differ in graphs alone, in turns."""
    engines = {graphs: stub_engine(count, TINY_VOCAB, graphs) for graphs in GRAPHS}
    for engine in engines.values():
        reach_steady_state(engine, stub_requests(count, TINY_VOCAB))
    steps = 2 * BLOCK_SIZE if count > 1 else 16 * BLOCK_SIZE
    samples: dict[str, list[float]] = {graph_row(count, graphs): [] for graphs in GRAPHS}
    for _ in range(rounds + 1):
        for graphs, engine in engines.items():
            samples[graph_row(count, graphs)].append(window(engine, steps))
    for graphs, engine in engines.items():
        modes = {mode for mode, _ in engine.metrics.graph_steps}
        assert graphs in modes, "steps were replayed"
    return {name: values[1:] for name, values in samples.items()}


def reach_steady_state(engine: Engine, requests: list[GenerateRequest]) -> None:
    """Admit all requests and step until every one is decoding."""
    for request in requests:
        engine.check(request)
        engine.add(request)
    while engine.scheduler.waiting or any(r.num_generated < 2 for r in engine.requests.values()):
        engine.step()


def sync_steps(count: int, vocab_size: int, rounds: int) -> list[float]:
    """Microseconds per step, one value per window."""
    engine = stub_engine(count, vocab_size)
    reach_steady_state(engine, stub_requests(count, vocab_size))
    steps = 2 * BLOCK_SIZE if count > 1 else 16 * BLOCK_SIZE
    samples = [window(engine, steps) for _ in range(rounds + 1)][1:]
    engine.check_integrity()
    return samples


def window(engine: Engine, steps: int) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        engine.step()
    return (time.perf_counter() - began) / steps * 1e6


async def async_steps(count: int, vocab_size: int, rounds: int) -> list[float]:
    """Microseconds per step while every request has a reader on the event loop."""
    engine = AsyncEngine(as_assembled(stub_engine(count, vocab_size)), cast("PluginHost", None))
    readers = [asyncio.create_task(read(engine, r)) for r in stub_requests(count, vocab_size)]
    metrics = engine.metrics
    while metrics.num_requests_waiting or metrics.num_requests_running < count:
        await asyncio.sleep(0.05)
    samples = []
    for _ in range(rounds + 1):
        assert metrics.num_requests_running == count, "a request ended while it was measured"
        steps, began = metrics.num_steps, time.perf_counter()
        await asyncio.sleep(SECONDS_PER_WINDOW[count])
        samples.append((time.perf_counter() - began) / (metrics.num_steps - steps) * 1e6)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    await engine.stop()
    return samples[1:]


async def read(engine: AsyncEngine, request: GenerateRequest) -> int:
    num_tokens = 0
    async with aclosing(engine.submit(request)) as outputs:
        async for output in outputs:
            num_tokens += len(output.tokens)
    return num_tokens


def profile_steps() -> str:
    """cProfile of steps of MANY requests: functions by own time, in microseconds per request and step. cProfile
    slows down small functions most."""
    engine = stub_engine(MANY, TINY_VOCAB)
    reach_steady_state(engine, stub_requests(MANY, TINY_VOCAB))
    steps = 4 * BLOCK_SIZE
    profile = cProfile.Profile()
    profile.runcall(window, engine, steps)
    lines = ["  own us  total us     calls  function (per request and step, under cProfile)"]
    unit = MANY * steps
    for entry in sorted(profile.getstats(), key=lambda entry: -entry.inlinetime)[:32]:
        code = entry.code
        place = code if isinstance(code, str) else f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"
        lines.append(
            f"{entry.inlinetime / unit * 1e6:8.3f}  {entry.totaltime / unit * 1e6:8.3f}  "
            f"{entry.callcount / unit:8.3f}  {place.rpartition('specserve/')[2]}"
        )
    return "\n".join(lines)
