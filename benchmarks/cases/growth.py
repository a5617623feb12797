"""How a decode step grows: over the context of one request, and over requests; the whole step, and attention alone.

A straight line goes through each, and the table says how far a cost lies from it. Requests of hardly any context show
what the model costs beside attention, with its weights in the cache. Costs are the lowest of all rounds, since
whatever else runs here can only add to them.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from benchmarks.lib.forwards import BLOCK_SIZE, batch_of, engine_of, kv_bytes, paged_attention, weight_bytes
from benchmarks.lib.line_fit import Line, farthest, fit, off
from benchmarks.lib.plot import Panel, Series, picture
from benchmarks.lib.report import Options, Result
from benchmarks.lib.shapes import BUILD
from benchmarks.lib.timing import alternate, seconds_of
from benchmarks.lib.workload import DTYPE, MODEL
from specserve.models.locate import locate_model
from specserve.testing.requests import toy_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.engine.assembly import Assembled
    from specserve.engine.engine import Engine

CONTEXTS = (256, 512, 1024, 2048, 4096, 8192)
COUNTS, CONTEXT, SHORT = (1, 2, 4, 8, 16, 32, 64), 640, 16
STEPS = 12
"""Timed in a row; the context grows by as many."""
LONGEST = 16384
COLD = "step, weights out of the caches"
OTHERS = 128 * 2**20
"""Bytes that a last-level cache does not hold beside anything else."""


class Sweep(NamedTuple):
    """Shapes of which one number doubles: (requests, context) by that number."""

    title: str
    unit: str
    shapes: dict[int, tuple[int, int]]


class Growth(NamedTuple):
    """Costs by size, and the line through them."""

    costs: dict[int, float]
    line: Line

    def sentence(self, what: str, unit: str) -> str:
        size, ratio = farthest(self.line, self.costs)
        base, each = self.line.base * 1e3, self.line.each * 1e6
        return f"{what}: {base:.3f} ms + {each:.3g} us per {unit}; farthest at {size}: {ratio:.2f} of the line."


def run(options: Options) -> Result:
    parser = argparse.ArgumentParser(prog="python -m benchmarks growth")
    parser.add_argument("--plot", type=Path, help="write the curves as SVG to this file")
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    args = parser.parse_args(options.rest)
    sweeps = [
        Sweep("context", "token of context", {n: (1, n) for n in args.contexts}),
        Sweep("requests", f"request of {CONTEXT} tokens", {n: (n, CONTEXT) for n in args.counts}),
        Sweep("short requests", f"request of {SHORT} tokens", {n: (n, SHORT) for n in args.counts}),
    ]
    product = product_of(options, [shape for sweep in sweeps for shape in sweep.shapes.values()])
    cold = {COLD: partial(lowest_step, product.engine, 1, SHORT, torch.ones(OTHERS // 4).sum)}
    taken = alternate(contenders(product, sweeps) | cold, options.rounds(12, 2))
    lowest = {name: min(seconds) for name, seconds in taken.items()}
    grown = {
        (sweep.title, what): Growth(costs, fit(costs))
        for sweep in sweeps
        for what in ("step", "attention")
        for costs in [{n: lowest[f"{what}, {sweep.title} {n}"] for n in sweep.shapes}]
    }
    if args.plot:
        args.plot.write_text(picture([panel(sweep, grown) for sweep in sweeps]), encoding="utf-8")
    return Result(
        title=f"a decode step of {MODEL}, {DTYPE}, {options.threads} threads, {product.description['kernels']}",
        columns=("", "step ms", "/ line", "attention ms", "/ line", "the rest ms", "KV MB", "attention GB/s"),
        rows=[row for sweep in sweeps for row in rows(product, sweep, grown)],
        notes=[
            grown[sweep.title, what].sentence(f"{what} over {sweep.title}", sweep.unit)
            for sweep in sweeps
            for what in ("step", "attention")
        ]
        + [cold_sentence(product, lowest[COLD])],
        raw=taken,
    )


def product_of(options: Options, shapes: list[tuple[int, int]]) -> Assembled:
    """The demo model with a longer table of rotations. All prompts of a shape fit in one step, so that all its requests
    decode from the same step on, and in the prefix cache together, so that only the first round computes them."""
    tokens = sum(count * (context + 2 * STEPS + BLOCK_SIZE) for count, context in shapes)
    product = engine_of(
        str(long_demo()),
        options,
        prefix_cache=True,
        max_num_seqs=max(count for count, _ in shapes),
        max_num_batched_tokens=tokens,
    )
    cache = product.engine.parts.cache
    assert cache.num_blocks * cache.block_size >= tokens
    cache.data.zero_()  # memory that nobody has written yet is one page of zeros, which no cache misses
    return product


def long_demo() -> Path:
    """The demo model with `LONGEST` positions: text behind those that it has learned is nonsense, but as fast."""
    source, path = locate_model(MODEL), BUILD / f"{MODEL}-{LONGEST}"
    path.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        target = path / file.name
        if file.name != "config.json" and not target.exists():
            target.symlink_to(file)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": LONGEST}), encoding="utf-8")
    return path


def contenders(product: Assembled, sweeps: list[Sweep]) -> dict[str, Callable[[], float]]:
    found: dict[str, Callable[[], float]] = {}
    for sweep in sweeps:
        for n, (count, context) in sweep.shapes.items():
            found[f"step, {sweep.title} {n}"] = partial(lowest_step, product.engine, count, context)
            found[f"attention, {sweep.title} {n}"] = partial(lowest_attention, product, count, context)
    return found


def lowest_step(engine: Engine, count: int, context: int, before: Callable[[], object] | None = None) -> float:
    """The fastest of some steps in which `count` requests decode, the first of them over `context` keys each.

    before: called before each step, and not timed.
    """
    names = [f"r{i}" for i in range(count)]
    for i, name in enumerate(names):
        prompt = [100 + i, *(100 + token % 5000 for token in range(context - 2))]
        engine.add(toy_request(name, prompt, max_tokens=2 * STEPS, ignore_eos=True))
    engine.step()
    assert all(engine.requests[name].num_generated == 1 for name in names)
    taken = []
    for _ in range(STEPS):
        if before:
            before()
        taken.append(seconds_of(engine.step))
    assert len(engine.requests) == count
    for name in names:
        engine.abort(name)
    return min(taken)


def lowest_attention(product: Assembled, count: int, context: int) -> float:
    """One call for each layer, keys and values written, behind a cache that other shapes have used in between."""
    action = partial(paged_attention, product.engine.runner, batch_of(count, context))
    return min(seconds_of(action) for _ in range(STEPS))


def rows(product: Assembled, sweep: Sweep, grown: dict[tuple[str, str], Growth]) -> list[tuple[str, ...]]:
    step, attention = grown[sweep.title, "step"], grown[sweep.title, "attention"]
    step_off, attention_off = off(step.line, step.costs), off(attention.line, attention.costs)
    found = []
    for n, (count, context) in sweep.shapes.items():
        size = kv_bytes(product.engine.runner.model, count * context)
        found.append(
            (f"{sweep.title} {n}", f"{step.costs[n] * 1e3:.3f}", f"{step_off[n]:.2f}",
             f"{attention.costs[n] * 1e3:.3f}", f"{attention_off[n]:.2f}",
             f"{(step.costs[n] - attention.costs[n]) * 1e3:.3f}", f"{size / 1e6:.1f}",
             f"{size / attention.costs[n] / 1e9:.1f}")
        )  # fmt: skip
    return found


def cold_sentence(product: Assembled, seconds: float) -> str:
    size = weight_bytes(product.engine.runner.model)
    return (
        f"A step of one short request after {OTHERS / 1e6:.0f} MB of other memory were read: {seconds * 1e3:.3f} ms; "
        f"{size / 1e6:.1f} MB of weights, {size / seconds / 1e9:.1f} GB/s."
    )


def panel(sweep: Sweep, grown: dict[tuple[str, str], Growth]) -> Panel:
    series = []
    for what in ("step", "attention"):
        growth = grown[sweep.title, what]
        points = {n: cost * 1e3 for n, cost in growth.costs.items()}
        series.append(Series(what, points, {n: growth.line.at(n) * 1e3 for n in growth.costs}))
    return Panel(f"ms of a decode step over {sweep.title}", series)
