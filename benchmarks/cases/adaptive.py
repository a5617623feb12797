"""Planners against fixed widths where the text changes: plain decoding, static widths, tiers and ranked, by phase.

*transition*: phases that do not repeat themselves (sampled at temperature 1) and phases that do (edits of a file,
greedy) in turns; *mixed*: half of the requests of each kind at once, as long as all of them run. All engines of a
round serve the same requests, a few steps each in turns, and live for the whole run, as a server does. Only decoding is
timed. Two plain engines tell the noise.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.phases import HIGH, LOW, MIXED, TRANSITION, Phases, in_turns
from benchmarks.lib.planner_step import planner_seconds
from benchmarks.lib.plot import require_matplotlib, save_bars
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.workload import DTYPE, MANY, demo_engine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.lib.decoding import Decoded
    from specserve.engine.assembly import Assembled
    from specserve.engine.engine import Engine

DRAFTERS = {"ngram": ("ngram",), "eagle": ("eagle",), "both": ("ngram", "eagle")}
WIDTHS = {"ngram": (1, 3, 7, 15), "eagle": (1, 2, 3, 5), "both": (1, 2, 3, 5)}
COUNTS = (1, 8, MANY)
PLAIN, PLAIN_AGAIN, TIERS, RANKED = "plain", "plain again", "tiers", "ranked"
MANY_NODES = (64, 16)
OF_BEST, OF_BEST_OF_PHASE, OF_PLAIN, OF_BEST_MIXED = 1.0, 0.97, 0.98, 1.05
CALIBRATION_ERROR = 0.05


class Flags(NamedTuple):
    drafters: Sequence[str]
    counts: Sequence[int]
    rounds: int
    plot: Path | None


def flags_of(options: Options) -> Flags:
    parser = argparse.ArgumentParser(prog="python -m benchmarks adaptive")
    parser.add_argument("--drafters", nargs="+", choices=tuple(DRAFTERS), default=["ngram", "eagle", "both"])
    parser.add_argument("--counts", nargs="+", type=int, default=list(COUNTS), help="concurrent requests")
    parser.add_argument("--rounds", type=int, default=options.rounds(5, 1))
    parser.add_argument("--plot", type=Path, help="draw throughput by phase into this file")
    args = parser.parse_args(options.rest)
    return Flags(args.drafters, args.counts, args.rounds, args.plot)


def engine_of(options: Options, drafters: str, planner: Mapping[str, object], steps: int | None = None) -> Assembled:
    """`steps`: of the draft model; None for its default."""
    names, tables = DRAFTERS[drafters], {"adaptive": {"cost_cache": "none", **planner}}
    if "eagle" in names:
        tables["eagle"] = {"model": "demo-eagle3"} | ({} if steps is None else {"steps": steps})
    return demo_engine(options, plugins=(*names, "adaptive"), plugin_options=tables, kv_memory="256M")


def engines_of(options: Options, drafters: str) -> dict[str, Assembled]:
    widths = WIDTHS[drafters]
    engines = {name: demo_engine(options, kv_memory="256M") for name in (PLAIN, PLAIN_AGAIN)}
    for width in widths:
        engines[f"static {width}"] = engine_of(options, drafters, {"mode": "static", "tokens": width}, width)
    engines[TIERS] = engine_of(options, drafters, {"mode": "tiers", "candidates": list(widths)}, widths[-1])
    engines[RANKED] = engine_of(options, drafters, {})
    return engines


def run(options: Options) -> Result:
    flags = flags_of(options)
    if flags.plot is not None:
        require_matplotlib()
    rows: list[tuple[str, ...]] = []
    planning = planner_seconds(*MANY_NODES) * 1e6  # before there are engines, whose objects and caches are not its own
    checks: list[Check] = []
    raw: dict[str, list[float]] = {}
    bars: dict[str, dict[str, float]] = {}
    for drafters in flags.drafters:
        engines = engines_of(options, drafters)
        running = {name: assembled.engine for name, assembled in engines.items()}
        per_round = len(TRANSITION) + 2  # texts: mixed requests take two
        needed = sum(max(8, count) for count in flags.counts) * per_round * (flags.rounds + 1)
        phases = Phases(engines[PLAIN].tokenizer, needed)
        for count in flags.counts:
            sums, errors = measured(running, phases, count, flags.rounds)
            label = f"{drafters}, {count} concurrent"
            speeds = {phase: {name: speed(each) for name, each in found.items()} for phase, found in sums.items()}
            transition = {name: speed([*sums[LOW][name], *sums[HIGH][name]]) for name in engines}
            speeds["low + high"] = transition
            for phase, found in speeds.items():
                rows.append(row_of(f"{label}: {phase}", found))
                bars[f"{label}: {phase}"] = found
            checks += checks_of(label, speeds)
            for phase, each in errors.items():
                what = f"{label}, {phase}: mean calibration error at the end of a phase"
                checks.append(Check(what, mean(each), CALIBRATION_ERROR, True))
            raw |= {
                f"{label} {phase} {name}": [one.throughput for one in each]
                for phase, found in sums.items()
                for name, each in found.items()
            }
    if flags.plot is not None:
        save_bars(bars, flags.plot)
    what = "a planner's step of {} requests x {} draft tokens".format(*MANY_NODES)
    checks.append(Check(what, planning, 100, True, " us"))
    return Result(
        title=f"Fixed widths, tiers and ranked where the text changes, demo model, {DTYPE}, {options.threads} threads",
        columns=("phase", "plain tok/s", "plain again", "best static", "which", "tiers", "ranked", "ranked / best"),
        rows=rows,
        checks=checks,
        raw=raw,
    )


class Measured(NamedTuple):
    """By phase: the rounds of each engine, and ranked's calibration errors at the end of each."""

    sums: dict[str, dict[str, list[Decoded]]]
    errors: dict[str, list[float]]


def measured(engines: Mapping[str, Engine], phases: Phases, count: int, rounds: int) -> Measured:
    """The first round warms up and is left out. A single request is no mixed batch."""
    order = TRANSITION if count == 1 else (*TRANSITION, MIXED)
    sums: dict[str, dict[str, list[Decoded]]] = {phase: {} for phase in order}
    errors: dict[str, list[float]] = {phase: [] for phase in order}
    for number in range(rounds + 1):
        for phase in order:
            decoded = in_turns(engines, phases.make(phase, count))
            if number:
                for name, each in decoded.items():
                    sums[phase].setdefault(name, []).append(each)
                errors[phase].append(calibration_error(engines[RANKED]))
    return Measured(sums, errors)


def calibration_error(engine: Engine) -> float:
    """Of its recent draft tokens, as its metrics tell."""
    name = "specserve_adaptive_calibration_error"
    return next(metric.value for metric in engine.observer_metrics() if metric.name == name)


def speed(rounds: Sequence[Decoded]) -> float:
    return sum(one.num_tokens for one in rounds) / sum(one.seconds for one in rounds)


def best_static(speeds: Mapping[str, float]) -> str:
    """Of the fixed widths, or plain decoding where that is faster."""
    return max((name for name in speeds if name.startswith("static") or name == PLAIN), key=lambda name: speeds[name])


def row_of(label: str, speeds: Mapping[str, float]) -> tuple[str, ...]:
    plain, best = speeds[PLAIN], best_static(speeds)
    ratios = (f"{speeds[name] / plain:.3f}x" for name in (PLAIN_AGAIN, best))
    of_planners = (f"{speeds[name] / plain:.3f}x" for name in (TIERS, RANKED))
    return (label, f"{plain:.0f}", *ratios, best, *of_planners, f"{speeds[RANKED] / speeds[best]:.3f}")


def checks_of(label: str, speeds: Mapping[str, Mapping[str, float]]) -> list[Check]:
    def against_best(phase: str, target: float) -> Check:
        found = speeds[phase]
        ratio = found[RANKED] / found[best_static(found)]
        return Check(f"{label}, {phase}: ranked / best static", ratio, target, False, "x")

    low = speeds[LOW]
    checks = [
        against_best("low + high", OF_BEST),
        against_best(LOW, OF_BEST_OF_PHASE),
        against_best(HIGH, OF_BEST_OF_PHASE),
        Check(f"{label}, low: ranked / plain", low[RANKED] / low[PLAIN], OF_PLAIN, False, "x"),
    ]
    return checks + ([against_best(MIXED, OF_BEST_MIXED)] if MIXED in speeds else [])
