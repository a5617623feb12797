"""Drafting a block of seven tokens with a DSpark head, in one native call and piece by piece, against EAGLE-3: one
draft token, and a chain of seven. Heads for the demo model; only drafting is timed, and no draft is verified.

`demo-dspark` is trained, and has the target's vocabulary. The other block heads have random weights, on which what a
block costs does not depend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.cases.eagle import HEAD
from benchmarks.lib.drafting_cost import CONTEXT
from benchmarks.lib.proposing import Proposing
from benchmarks.lib.random_block_head import BlockShape, write_random_block_head
from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.shapes import BUILD
from benchmarks.lib.timing import alternate, medians, spread
from benchmarks.lib.workload import DTYPE, MODEL, demo_engine
from specserve.models.locate import locate_model

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTS, BLOCK, DRAFT_VOCAB = (1, 8, 32), 7, 3072
TRAINED_HEAD = "demo-dspark"
SMALL, TRAINED = BlockShape(BLOCK, 1, 64, DRAFT_VOCAB), BlockShape(BLOCK, 2, 256, DRAFT_VOCAB)
"""TRAINED: what `specserve-eagle train` makes by default. The draft vocabulary is that of the EAGLE-3 head."""
TARGET = 1.3


class Variant(NamedTuple):
    head: str
    steps: int
    in_pieces: bool = False


def variants() -> dict[str, Variant]:
    made: dict[str, Variant] = {"EAGLE-3, 1": Variant(HEAD, 1), f"EAGLE-3, {BLOCK}": Variant(HEAD, BLOCK)}
    made |= {f"block of {TRAINED_HEAD}": Variant(TRAINED_HEAD, BLOCK)}
    for shape in (SMALL, TRAINED):
        folder = BUILD / f"demo-dspark-{shape.num_layers}-{shape.markov_rank}"
        head = str(write_random_block_head(locate_model(MODEL), folder, shape))
        name = f"block, {shape.num_layers} layers, rank {shape.markov_rank}"
        made |= {name: Variant(head, BLOCK), f"{name}, in pieces": Variant(head, BLOCK, in_pieces=True)}
    return made


def proposing(options: Options, variant: Variant, count: int) -> Proposing:
    settings: dict[str, dict[str, Any]] = {"eagle": {"model": variant.head, "steps": variant.steps}}
    made = Proposing(demo_engine(options, plugins=("eagle",), plugin_options=settings).engine, count)
    if variant.in_pieces:
        made.drafter.passes = made.drafter.runtime.passes = made.drafter.passes.pieces
    return made


def run(options: Options) -> Result:
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    raw: dict[str, list[float]] = {}
    chosen = variants()
    for count in COUNTS:
        measured: dict[str, Callable[[], float]] = {
            name: proposing(options, variant, count).seconds for name, variant in chosen.items()
        }
        samples = alternate(measured, options.rounds(15, 2))
        median = medians(samples)
        one, chain = median["EAGLE-3, 1"], median[f"EAGLE-3, {BLOCK}"]
        for name, seconds in median.items():
            micros = [sample * 1e6 for sample in samples[name]]
            rows.append(
                (f"{name}, {count} requests", f"{seconds * 1e6:.0f}", spread(micros), f"{seconds / one:.2f}",
                 f"{seconds / chain:.2f}")
            )  # fmt: skip
            if name.startswith("block") and not chosen[name].in_pieces:
                checks.append(Check(f"{name}, {count} requests / one EAGLE-3 token", seconds / one, TARGET, True, "x"))
        raw |= {f"{name}, {count} requests": values for name, values in samples.items()}
    return Result(
        title=f"drafting {BLOCK} tokens, demo model, {DTYPE}, {options.threads} threads, context from {CONTEXT}",
        columns=("head and tokens", "us", "min..max us", "/ EAGLE-3's 1", f"/ EAGLE-3's {BLOCK}"),
        rows=rows,
        checks=checks,
        raw=raw,
    )
