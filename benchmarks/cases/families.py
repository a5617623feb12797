"""A mixture of experts against a dense model with the same attention and an MLP as wide as a token's experts together.

For one request both read as many weights in a step, so a step should take as long. More requests read more experts, up
to all of them: the dense model's MLP is read once for all. Then models that transformers computes, against the engine's
own families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.lib import by_transformers
from benchmarks.lib.decoding import random_decoding
from benchmarks.lib.report import Check, Options, Result, aligned
from benchmarks.lib.shapes import DENSE, EXPERTS, SHAPES, model_directory
from benchmarks.lib.timing import alternate, medians, spread
from benchmarks.lib.workload import DTYPE, MANY
from specserve_workbench.testing.engines import make_engine

if TYPE_CHECKING:
    from specserve.engine.engine import Engine

TARGET = 1.4
COUNTS = (1, 8, MANY)


def run(options: Options) -> Result:
    engines = {name: engine_of(name, options) for name in (EXPERTS, DENSE)}
    samples = {
        count: alternate({name: random_decoding(each, count) for name, each in engines.items()}, options.rounds(5, 1))
        for count in COUNTS
    }
    median = {count: medians(of_count) for count, of_count in samples.items()}
    rows = [
        (
            str(count),
            f"{of_count[EXPERTS]:.0f}",
            spread(samples[count][EXPERTS]),
            f"{of_count[DENSE]:.0f}",
            f"{of_count[DENSE] / of_count[EXPERTS]:.2f}x",
            f"{touched(count):.1f}",
        )
        for count, of_count in median.items()
    ]
    shape = SHAPES[EXPERTS]
    ratio = median[1][DENSE] / median[1][EXPERTS]
    engines.clear()
    others = by_transformers.compare(options)
    return Result(
        title=f"decoding, {shape['num_experts']} experts of {shape['moe_intermediate_size']}, "
        f"{shape['num_experts_per_tok']} for each token, against an MLP of {SHAPES[DENSE]['intermediate_size']}; "
        f"{DTYPE}, {options.threads} threads",
        columns=("requests", "experts, tokens/s", "min..max", "dense, tokens/s", "dense / experts", "experts expected"),
        rows=rows,
        checks=[
            Check("seconds per weight read, experts / dense, one request", ratio, TARGET, True, "x"),
            *others.checks,
        ],
        notes=["The last column: experts of a layer that a step reads where every row chooses at random."],
        raw={f"{name}, {count}": each for count, of_count in samples.items() for name, each in of_count.items()}
        | others.raw,
        details="\n".join(aligned([by_transformers.COLUMNS, *others.rows])),
    )


def engine_of(name: str, options: Options) -> Engine:
    path = model_directory(name)
    return make_engine(
        path, default_plugins=True, dtype=DTYPE, threads=options.threads, max_model_len=512, kv_memory="512M"
    ).engine


def touched(rows: int) -> float:
    """E (1 - (1 - k / E)^rows)."""
    shape = SHAPES[EXPERTS]
    count, chosen = int(shape["num_experts"]), int(shape["num_experts_per_tok"])
    return count * (1.0 - (1.0 - chosen / count) ** rows)
