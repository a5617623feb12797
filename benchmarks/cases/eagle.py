"""The demo model's EAGLE-3 head against plain decoding, and beside n-gram drafts, in output tokens per second.

Prompts are of files that neither the demo model nor the head was trained on. Only decoding is timed, on warm engines,
which alternate every few steps. What drafting itself costs is timed with drafts that are made and not verified.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.lib.alternating import decode_in_turns
from benchmarks.lib.drafting_cost import drafting_cost
from benchmarks.lib.random_head import write_random_head
from benchmarks.lib.report import Check, Options, Result, aligned
from benchmarks.lib.shapes import BUILD, HALF_BILLION, model_directory
from benchmarks.lib.timing import spread
from benchmarks.lib.workload import DTYPE, MANY, PROMPT_LEN, demo_engine, edit_prompt, held_out_prompts, seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.lib.alternating import Engines
    from benchmarks.lib.decoding import Decoded
    from specserve.engine.engine import Engine
    from specserve.types import GenerateRequest

HEAD = "demo-eagle3"
STEPS: tuple[int | str, ...] = (1, 2, 3, 4, "auto")
COUNTS, TEMPERATURES = (1, 8, MANY), (0.0, 0.8, 1.0)
BEST_TARGET, NEVER_BELOW, OF_BEST_DRAFTER = 1.25, 0.98, 0.98
COST_FACTOR, COST_ALLOWANCE = 1.5, 60e-6
"""Drafting k tokens may take 1.5 k of the head's share of a plain step, and 60 us."""


def eagle_engine(options: Options, *others: str, head: str = HEAD, **settings: Any) -> Engine:
    eagle = {"model": head, **settings}
    return demo_engine(options, plugins=("eagle", *others), plugin_options={"eagle": eagle}).engine


def always(engine: Engine) -> Callable[[], Engine]:
    """The same engine in every round."""
    return lambda: engine


def run(options: Options) -> Result:
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    raw: dict[str, list[float]] = {}
    for name, row, more, measured in (*alone(options), *together(options)):
        rows.append((name, *row))
        checks += more
        raw |= {f"{name} {who}": [one.throughput for one in rounds] for who, rounds in measured.items()}
    costs, cost_checks = drafting_costs(options)
    return Result(
        title=f"EAGLE-3 drafts against plain decoding, demo model, {DTYPE}, {options.threads} threads; tokens/s",
        columns=("workload", "plain", "drafted", "min..max", "speed-up", "acceptance length", "best of"),
        rows=rows,
        checks=checks + cost_checks,
        raw=raw,
        details="\n".join(aligned(costs)),
    )


def speedup(measured: dict[str, list[Decoded]], who: str, against: str = "plain") -> float:
    """Round by round, since the texts of two rounds differ in speed."""
    return median(b.throughput / a.throughput for a, b in zip(measured[against], measured[who], strict=True))


def row_of(measured: dict[str, list[Decoded]], best: str) -> tuple[str, ...]:
    plain, drafted = ([one.throughput for one in measured[who]] for who in ("plain", best))
    length = sum(one.mean_acceptance_length for one in measured[best]) / len(drafted)
    return (
        f"{median(plain):.0f}", f"{median(drafted):.0f}", spread(drafted), f"{speedup(measured, best):.3f}x",
        f"{length:.2f}", best,
    )  # fmt: skip


def alone(options: Options) -> Iterator[Any]:
    """Every number of steps; the row is of the best."""
    plain = demo_engine(options)
    rounds = options.rounds(5, 1)
    engines: Engines = {"plain": lambda: plain.engine}
    for steps in STEPS:
        engines[f"steps={steps}"] = always(eagle_engine(options, steps=steps))
    for temperature in TEMPERATURES:
        for count in COUNTS:
            texts = held_out_prompts(
                plain.tokenizer, (rounds + 1) * count, min(PROMPT_LEN, 400_000 // ((rounds + 1) * count))
            )
            measured = decode_in_turns(engines, partial(requests_of, texts, count, temperature), rounds)
            best = max((who for who in measured if who != "plain"), key=partial(speedup, measured))
            name = f"code at {temperature:g}, {count} concurrent"
            target = BEST_TARGET if (temperature, count) == (0.0, 1) else NEVER_BELOW
            yield (
                name,
                row_of(measured, best),
                [
                    Check(f"{name}, best steps", speedup(measured, best), target, False, "x"),
                    Check(f"{name}, steps=auto", speedup(measured, "steps=auto"), NEVER_BELOW, False, "x"),
                ],
                measured,
            )


def requests_of(texts: list[tuple[int, ...]], count: int, temperature: float, n: int) -> list[GenerateRequest]:
    of_round = texts[n * count : (n + 1) * count]
    return [seeded(f"s{n}.{i}", prompt, temperature, 1000 * n + i) for i, prompt in enumerate(of_round)]


def together(options: Options) -> Iterator[Any]:
    """n-gram and EAGLE-3 against the better of both alone."""
    plain = demo_engine(options)
    rounds = options.rounds(5, 1)
    parts = {
        "plain": plain.engine,
        "ngram": demo_engine(options, plugins=("ngram",)).engine,
        "eagle": eagle_engine(options),
        "both": eagle_engine(options, "ngram"),
    }
    engines: Engines = {name: always(engine) for name, engine in parts.items()}
    files = held_out_prompts(plain.tokenizer, 3 * (rounds + 1), 500)

    def edits(n: int) -> list[GenerateRequest]:
        return [seeded(f"e{n}", edit_prompt(plain.tokenizer, files[3 * n]), 0.0, n)]

    def code(n: int) -> list[GenerateRequest]:
        return [seeded(f"c{n}", files[3 * n + 1], 0.0, n)]

    def mixed(n: int) -> list[GenerateRequest]:
        return [*edits(n), seeded(f"m{n}", files[3 * n + 2], 0.8, n), *code(n)]

    for name, make in (("edit", edits), ("plain code", code), ("mixed, 3 concurrent", mixed)):
        measured = decode_in_turns(engines, make, rounds)
        better = max(("ngram", "eagle"), key=partial(speedup, measured))
        label = f"{name}: ngram + eagle"
        yield (
            label,
            row_of(measured, "both"),
            [Check(f"{label} / {better} alone", speedup(measured, "both", better), OF_BEST_DRAFTER, False, "x")],
            measured,
        )


def drafting_costs(options: Options) -> tuple[list[tuple[str, ...]], list[Check]]:
    """What a step takes longer where k tokens are drafted and none is verified."""
    table: list[tuple[str, ...]] = [("drafting alone", "plain step", "drafting", "allowed")]
    checks = []
    random = write_random_head(model_directory(HALF_BILLION), BUILD / f"{HALF_BILLION}-eagle3", 32_000)
    for model, head in (("demo", HEAD), (HALF_BILLION, str(random))):
        for steps in (1, 3):
            cost = drafting_cost(options, model, head, steps)
            allowed = COST_FACTOR * steps * cost.share * cost.plain + COST_ALLOWANCE
            label = f"{model}, {steps} draft tokens"
            table.append((label, *(f"{seconds * 1e6:.0f} us" for seconds in (cost.plain, cost.drafting, allowed))))
            checks.append(Check(f"{label}: drafting / allowed", cost.drafting / allowed, 1.0, True))
    return table, checks
