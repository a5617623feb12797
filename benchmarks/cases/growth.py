"""How the cost of a decode step scales with context length and with concurrent requests: whole step, and attention.

A straight line is fitted to each, and the table gives cost / line. Requests with a short context show the cost of the
model without attention, its weights in the CPU caches. Costs are minima over all rounds, since other processes can only
add to them.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from benchmarks.lib.forwards import (
    BLOCK_SIZE,
    batch_of,
    engine_of,
    kv_bytes,
    paged_attention,
    weight_bytes,
    write_cache,
)
from benchmarks.lib.line_fit import Line, fit, largest_deviation, ratios_to_line
from benchmarks.lib.plot import Panel, Series, require_matplotlib, save_plot
from benchmarks.lib.report import Options, Result
from benchmarks.lib.shapes import BUILD
from benchmarks.lib.timing import alternate, seconds_of
from benchmarks.lib.workload import DTYPE, MODEL
from specserve.models.locate import locate_model
from specserve_workbench.testing.requests import toy_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.engine.assembly import Assembled
    from specserve.engine.engine import Engine

CONTEXTS = (256, 512, 1024, 2048, 4096, 8192)
COUNTS, CONTEXT, SHORT = (1, 2, 4, 8, 16, 32, 64), 640, 16
STEPS = 12
"""Timed in a row; the context grows by one token in each."""
MAX_LEN = 16384
COLD = "step, weights evicted from the caches"
EVICTING_BYTES = 128 * 2**20
"""Reading this many bytes evicts everything else from the last-level cache."""


class Sweep(NamedTuple):
    """Shapes (requests, context) by the number that is varied."""

    title: str
    unit: str
    shapes: dict[int, tuple[int, int]]


class Scaling(NamedTuple):
    """Costs by size, and the line fitted to them."""

    costs: dict[int, float]
    line: Line

    def sentence(self, what: str, unit: str) -> str:
        size, ratio = largest_deviation(self.line, self.costs)
        intercept, slope = self.line.intercept * 1e3, self.line.slope * 1e6
        return f"{what}: {intercept:.3f} ms + {slope:.3g} us per {unit}; largest deviation {ratio:.2f}x, at {size}."


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks growth")
    parser.add_argument("--plot", type=Path, help="draw the curves to this file (needs matplotlib)")
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    return parser


def run(options: Options) -> Result:
    args = arguments().parse_args(options.rest)
    if args.plot:
        require_matplotlib()
    sweeps = [
        Sweep("context", "token of context", {n: (1, n) for n in args.contexts}),
        Sweep("requests", f"request of {CONTEXT} tokens", {n: (n, CONTEXT) for n in args.counts}),
        Sweep("short requests", f"request of {SHORT} tokens", {n: (n, SHORT) for n in args.counts}),
    ]
    assembled = make_engine(options, [shape for sweep in sweeps for shape in sweep.shapes.values()])
    cold = {COLD: partial(fastest_step, assembled.engine, 1, SHORT, torch.ones(EVICTING_BYTES // 4).sum)}
    samples = alternate(make_variants(assembled, sweeps) | cold, options.rounds(12, 2))
    fastest = {name: min(seconds) for name, seconds in samples.items()}
    scaling = fit_lines(sweeps, fastest)
    if args.plot:
        save_plot([panel(sweep, scaling) for sweep in sweeps], args.plot)
    return Result(
        title=f"a decode step of {MODEL}, {DTYPE}, {options.threads} threads, {assembled.description['kernels']}",
        columns=("", "step ms", "/ line", "attention ms", "/ line", "other ms", "KV MB", "attention GB/s"),
        rows=[row for sweep in sweeps for row in rows(assembled, sweep, scaling)],
        notes=[
            scaling[sweep.title, what].sentence(f"{what} over {sweep.title}", sweep.unit)
            for sweep in sweeps
            for what in ("step", "attention")
        ]
        + [cold_sentence(assembled, fastest[COLD])],
        raw=samples,
    )


def fit_lines(sweeps: list[Sweep], fastest: dict[str, float]) -> dict[tuple[str, str], Scaling]:
    """By sweep title and "step" or "attention"."""
    return {
        (sweep.title, what): Scaling(costs, fit(costs))
        for sweep in sweeps
        for what in ("step", "attention")
        for costs in [{n: fastest[f"{what}, {sweep.title} {n}"] for n in sweep.shapes}]
    }


def make_engine(options: Options, shapes: list[tuple[int, int]]) -> Assembled:
    """The demo model with MAX_LEN positions. All prompts of a shape fit in one step, so that its requests begin to
    decode in the same step, and all prompts fit in the prefix cache, so that only the first round computes them."""
    tokens = sum(count * (context + 2 * STEPS + BLOCK_SIZE) for count, context in shapes)
    assembled = engine_of(
        str(long_demo()),
        options,
        prefix_cache=True,
        max_num_seqs=max(count for count, _ in shapes),
        max_num_batched_tokens=tokens,
    )
    cache = assembled.engine.parts.cache
    assert cache.num_blocks * cache.block_size >= tokens
    write_cache(assembled)
    return assembled


def long_demo() -> Path:
    """The demo model with MAX_LEN positions. Past those that it was trained on, only its speed is meaningful."""
    source, path = locate_model(MODEL), BUILD / f"{MODEL}-{MAX_LEN}"
    path.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        target = path / file.name
        if file.name != "config.json" and not target.exists():
            target.symlink_to(file)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": MAX_LEN}), encoding="utf-8")
    return path


def make_variants(assembled: Assembled, sweeps: list[Sweep]) -> dict[str, Callable[[], float]]:
    found: dict[str, Callable[[], float]] = {}
    for sweep in sweeps:
        for n, (count, context) in sweep.shapes.items():
            found[f"step, {sweep.title} {n}"] = partial(fastest_step, assembled.engine, count, context)
            found[f"attention, {sweep.title} {n}"] = partial(fastest_attention, assembled, count, context)
    return found


def fastest_step(engine: Engine, count: int, context: int, before: Callable[[], object] | None = None) -> float:
    """The fastest of STEPS decode steps of `count` requests, whose contexts begin with `context` tokens.

    before: called before each step, and not timed.
    """
    names = [f"r{i}" for i in range(count)]
    for i, name in enumerate(names):
        prompt = [100 + i, *(100 + token % 5000 for token in range(context - 2))]
        engine.add(toy_request(name, prompt, max_tokens=2 * STEPS, ignore_eos=True))
    engine.step()
    assert all(engine.requests[name].num_generated == 1 for name in names)
    seconds = []
    for _ in range(STEPS):
        if before:
            before()
        seconds.append(seconds_of(engine.step))
    assert len(engine.requests) == count
    for name in names:
        engine.abort(name)
    return min(seconds)


def fastest_attention(assembled: Assembled, count: int, context: int) -> float:
    """One attention call per layer, keys and values written. Other shapes have used the KV cache in between."""
    action = partial(paged_attention, assembled.engine.runner, batch_of(count, context))
    return min(seconds_of(action) for _ in range(STEPS))


def rows(assembled: Assembled, sweep: Sweep, scaling: dict[tuple[str, str], Scaling]) -> list[tuple[str, ...]]:
    step, attention = scaling[sweep.title, "step"], scaling[sweep.title, "attention"]
    step_ratios = ratios_to_line(step.line, step.costs)
    attention_ratios = ratios_to_line(attention.line, attention.costs)
    found: list[tuple[str, ...]] = []
    for n, (count, context) in sweep.shapes.items():
        size = kv_bytes(assembled.engine.runner.model, count * context)
        found.append(
            (f"{sweep.title} {n}", f"{step.costs[n] * 1e3:.3f}", f"{step_ratios[n]:.2f}",
             f"{attention.costs[n] * 1e3:.3f}", f"{attention_ratios[n]:.2f}",
             f"{(step.costs[n] - attention.costs[n]) * 1e3:.3f}", f"{size / 1e6:.1f}",
             f"{size / attention.costs[n] / 1e9:.1f}")
        )  # fmt: skip
    return found


def cold_sentence(assembled: Assembled, seconds: float) -> str:
    size = weight_bytes(assembled.engine.runner.model)
    return (
        f"A step of one short request after reading {EVICTING_BYTES / 1e6:.0f} MB of other memory: {seconds * 1e3:.3f} "
        f"ms; {size / 1e6:.1f} MB of weights, {size / seconds / 1e9:.1f} GB/s."
    )


def panel(sweep: Sweep, scaling: dict[tuple[str, str], Scaling]) -> Panel:
    series = []
    for what in ("step", "attention"):
        costs, line = scaling[sweep.title, what]
        in_ms = Line(line.intercept * 1e3, line.slope * 1e3)
        series.append(Series(what, {n: cost * 1e3 for n, cost in costs.items()}, in_ms.at))
    return Panel(f"ms of a decode step over {sweep.title}", series)
