"""Measures every setting under every load: a server for each setting, one after the other, in several rounds.

A round visits all settings, so that a slow minute of the machine does not fall on one of them alone. In a round all
settings get the same prompts, and no prompt comes twice. More rounds follow while chance decides what is recommended.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import ConfigError
from specserve_bench.client.target import Target
from specserve_bench.figures.summary import summarise
from specserve_bench.serve.measure import measure
from specserve_bench.serve.settings import Settings
from specserve_bench.served.server_process import NotReadyError, server
from specserve_bench.sweep.recommend import recommend
from specserve_bench.sweep.samples import medians, noise, samples_of
from specserve_bench.sweep.toml import engine_toml
from specserve_bench.sweep.with_setting import with_setting

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from specserve.config import EngineConfig
    from specserve_bench.figures.summary import Summary
    from specserve_bench.output.table import Progress
    from specserve_bench.sweep.cells import Cell, Setting
    from specserve_bench.sweep.compared import Recommendation

FEWEST_REQUESTS = 16


class Plan(NamedTuple):
    config: EngineConfig
    drafters: tuple[str, ...]
    settings: Sequence[Setting]
    cells: Sequence[Cell]
    rounds: int
    """At least."""
    most_rounds: int
    api: str
    prompts: tuple[str, ...]
    max_tokens: int

    @property
    def runs_per_round(self) -> int:
        return len(self.settings) * len(self.cells)


class Measurement(NamedTuple):
    round: int
    setting: Setting
    cell: Cell
    summary: Summary


class Sweep(NamedTuple):
    found: list[Measurement]
    num_rounds: int
    """That were begun."""
    interrupted: bool


def measure_all(plan: Plan, progress: Progress) -> Sweep:
    """SIGINT ends it: the run under way is dropped. ConfigError where a setting cannot be served, or a request fails:
    what is left would be no comparison."""
    found: list[Measurement] = []
    number = 0
    try:
        for number in count():
            progress.extend(plan.runs_per_round)
            for setting in plan.settings:
                with closing(measure_setting(plan, setting, number)) as measurements:
                    for measurement in measurements:
                        found.append(measurement)
                        progress.advance()
            if is_enough(plan, number + 1, found):
                break
    except KeyboardInterrupt:
        return Sweep(found, number + 1, True)
    return Sweep(found, number + 1, False)


def is_enough(plan: Plan, num_rounds: int, found: Sequence[Measurement]) -> bool:
    if num_rounds < plan.rounds:
        return False
    advised = advise(plan, found)
    return num_rounds >= plan.most_rounds or advised is None or not advised.by_noise


def samples(found: Sequence[Measurement]) -> dict[Setting, dict[Cell, list[float]]]:
    return samples_of((one.setting, one.cell, one.summary.output_tokens_per_second) for one in found)


def advise(plan: Plan, found: Sequence[Measurement]) -> Recommendation | None:
    """None where a setting was not yet measured under every load."""
    by_setting = samples(found)
    if any(cell not in by_setting.get(setting, {}) for setting in plan.settings for cell in plan.cells):
        return None
    return recommend(medians(by_setting), noise(by_setting))


def measure_setting(plan: Plan, setting: Setting, number: int) -> Generator[Measurement]:
    config = with_setting(plan.config, setting, plan.drafters)
    with tempfile.TemporaryDirectory(prefix="specserve-bench-") as folder:
        file = Path(folder) / "serve.toml"
        file.write_text(engine_toml(config, setting.name), encoding="utf-8")
        try:
            with server("--config", str(file)) as served:
                for at, cell in enumerate(plan.cells):
                    seed = number * len(plan.cells) + at
                    yield Measurement(number, setting, cell, measure_cell(plan, served.url, cell, seed))
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
