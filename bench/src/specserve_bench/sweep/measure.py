"""Measures every setting under every load: a server for each setting, one after the other, in several rounds.

A round visits all settings, so that a slow minute of the machine does not fall on one of them alone. In a round all
settings get the same prompts, and no prompt comes twice.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import ConfigError
from specserve_bench.client.target import Target
from specserve_bench.figures.summary import summarise
from specserve_bench.serve.measure import measure
from specserve_bench.serve.settings import Settings
from specserve_bench.served.server_process import NotReadyError, server
from specserve_bench.sweep.toml import engine_toml
from specserve_bench.sweep.with_setting import with_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from specserve.config import EngineConfig
    from specserve_bench.figures.summary import Summary
    from specserve_bench.sweep.cells import Cell, Setting

FEWEST_REQUESTS = 8


class Plan(NamedTuple):
    config: EngineConfig
    drafters: tuple[str, ...]
    settings: Sequence[Setting]
    cells: Sequence[Cell]
    rounds: int
    api: str
    prompts: tuple[str, ...]
    max_tokens: int

    @property
    def num_runs(self) -> int:
        return self.rounds * len(self.settings) * len(self.cells)


class Measurement(NamedTuple):
    setting: Setting
    cell: Cell
    summary: Summary


def measure_all(plan: Plan, on_run: Callable[[Measurement], None]) -> list[Measurement]:
    """ConfigError where a setting cannot be served, or a request fails: what is left would be no comparison."""
    found = []
    for number in range(plan.rounds):
        for setting in plan.settings:
            for measurement in measure_setting(plan, setting, number):
                on_run(measurement)
                found.append(measurement)
    return found


def measure_setting(plan: Plan, setting: Setting, number: int) -> Iterator[Measurement]:
    config = with_setting(plan.config, setting, plan.drafters)
    with tempfile.TemporaryDirectory(prefix="specserve-bench-") as folder:
        file = Path(folder) / "serve.toml"
        file.write_text(engine_toml(config, setting.name), encoding="utf-8")
        try:
            with server("--config", str(file)) as served:
                for at, cell in enumerate(plan.cells):
                    seed = number * len(plan.cells) + at
                    yield Measurement(setting, cell, measure_cell(plan, served.url, cell, seed))
        except NotReadyError as error:
            raise ConfigError(f"bench sweep: the setting {setting.name} cannot be served. {error}") from None


def measure_cell(plan: Plan, url: str, cell: Cell, seed: int) -> Summary:
    settings = Settings(
        api=plan.api,
        prompts=plan.prompts,
        num_requests=max(FEWEST_REQUESTS, 2 * cell.concurrency),
        concurrency=cell.concurrency,
        seed=seed,
        max_tokens=plan.max_tokens,
        temperature=cell.temperature,
        ignore_eos=True,
        num_warm_up=cell.concurrency,
    )
    measured = asyncio.run(measure(Target(url), settings, lambda _: None))
    if measured.run.interrupted:
        raise KeyboardInterrupt
    summary = summarise(measured.run.records, measured.run.seconds)
    if summary.failures:
        failure = next(record.failure for record in measured.run.records if record.failure)
        raise ConfigError(f"bench sweep: with {cell} a request failed: {failure.kind}: {failure.message}")
    return summary


def rates(measurements: Sequence[Measurement]) -> dict[Setting, dict[Cell, float]]:
    """Output tokens per second, the median of all rounds."""
    every: dict[Setting, dict[Cell, list[float]]] = {}
    for setting, cell, summary in measurements:
        every.setdefault(setting, {}).setdefault(cell, []).append(summary.output_tokens_per_second)
    return {setting: {cell: median(found) for cell, found in cells.items()} for setting, cells in every.items()}


def spread(measurements: Sequence[Measurement]) -> float:
    """How far rounds of the same setting and cell lie apart: the median of (largest - smallest) / median; 0 of one
    round."""
    every: dict[tuple[Setting, Cell], list[float]] = {}
    for setting, cell, summary in measurements:
        every.setdefault((setting, cell), []).append(summary.output_tokens_per_second)
    return median((max(found) - min(found)) / (median(found) or math.inf) for found in every.values())
