"""Models that the plugin transformers computes, in turns with the engine's own families of the same weights.

Two of one shape: a Llama, whose layers the plugin finds to be the engine's own, and a Granite, whose layers run the
code of their class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.decoding import random_decoding
from benchmarks.lib.report import Check
from benchmarks.lib.shapes import SMALL_GRANITE, SMALL_LLAMA, model_directory
from benchmarks.lib.timing import alternate, medians, spread
from specserve_workbench.testing.engines import make_engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.lib.report import Options
    from specserve.engine.engine import Engine

DTYPES, COUNTS = ("bfloat16", "float32"), (1, 4)
OWN, PLUGIN = "own family", "transformers"
ARCHITECTURES = {OWN: "unknown", PLUGIN: "all"}
"""The plugin's option."""
COLUMNS = ("model", "dtype", "requests", "transformers, tokens/s", "min..max", "own family, tokens/s", "of it")
TARGET = 0.8


class Compared(NamedTuple):
    """rows: under COLUMNS."""

    rows: list[tuple[str, ...]]
    checks: list[Check]
    raw: dict[str, list[float]]


def compare(options: Options) -> Compared:
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    raw: dict[str, list[float]] = {}
    for name in (SMALL_LLAMA, SMALL_GRANITE):
        ratios = []
        for dtype in DTYPES:
            engines = {who: engine_of(name, dtype, who, options) for who in ARCHITECTURES}
            for count in COUNTS:
                samples = alternate(decodings(engines, count), options.rounds(5, 1))
                median = medians(samples)
                ratios.append(median[PLUGIN] / median[OWN])
                speeds = (f"{median[PLUGIN]:.0f}", spread(samples[PLUGIN]), f"{median[OWN]:.0f}", f"{ratios[-1]:.2f}x")
                rows.append((name, dtype, str(count), *speeds))
                raw |= {f"{name}, {dtype}, {count}, {who}": each for who, each in samples.items()}
        least = f"{name} by transformers, of its own family's speed at least"
        checks.append(Check(least, min(ratios), TARGET, False, "x"))
    return Compared(rows, checks, raw)


def engine_of(name: str, dtype: str, who: str, options: Options) -> Engine:
    return make_engine(
        model_directory(name),
        default_plugins=True,
        dtype=dtype,
        threads=options.threads,
        max_model_len=512,
        kv_memory="128M",
        plugin_options={PLUGIN: {"architectures": ARCHITECTURES[who]}},
    ).engine


def decodings(engines: dict[str, Engine], count: int) -> dict[str, Callable[[], float]]:
    return {who: random_decoding(engine, count) for who, engine in engines.items()}
