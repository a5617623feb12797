"""Every drafter, new for each text or one for all, at every budget; and the table of what was accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer
from specserve_bench.output.table import console, print_table
from specserve_bench.replay.harness import DrafterVariant, by_kind, replay_all
from specserve_bench.replay.plugin_drafter import DrafterFactory
from specserve_bench.replay.read_texts import Lengths, read_texts
from specserve_bench.replay.stats import ReplayStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from specserve.config import EngineConfig
    from specserve_bench.replay.trace import Trace

COLD, WARM = "new for each text", "one for all texts"


class Run(NamedTuple):
    drafter: str
    setting: str
    budget: int
    kinds: Mapping[str, ReplayStats]

    @property
    def total(self) -> ReplayStats:
        return sum(self.kinds.values(), ReplayStats())


class Runner:
    """Has the texts and the drafters once, for all runs."""

    def __init__(
        self, config: EngineConfig, drafters: Sequence[str], files: Sequence[Path], prompt_len: int, output_len: int
    ) -> None:
        tokenizer = HfTokenizer.from_dir(locate_model(config.model))
        self.traces = read_texts(files, tokenizer, Lengths(prompt_len, output_len))
        vocab_size = 1 + max(token for trace in self.traces for token in (*trace.prompt, *trace.output))
        self._factories = {name: DrafterFactory(config, name, vocab_size) for name in drafters}

    def variants(self) -> Iterator[DrafterVariant]:
        for name, factory in self._factories.items():
            yield DrafterVariant(name, COLD, factory.make, reused=False)
            if len(self.traces) > 1:
                yield DrafterVariant(name, WARM, factory.make, reused=True)

    def num_runs(self, budgets: Sequence[int]) -> int:
        return len(budgets) * len(list(self.variants()))

    def replay(self, budgets: Sequence[int], on_run: Callable[[object], None]) -> Iterator[Run]:
        for budget in budgets:
            for variant in self.variants():
                run = Run(
                    variant.name, variant.setting, budget, by_kind(list(replay_all(variant, self.traces, budget)))
                )
                on_run(run)
                yield run


def print_runs(traces: Sequence[Trace], runs: Sequence[Run]) -> None:
    kinds = list(runs[0].kinds)
    rows = []
    for run in runs:
        lengths = (f"{run.kinds[kind].mean_acceptance_length:.2f}" for kind in kinds)
        total = run.total
        costs = (
            f"{total.mean_acceptance_length:.2f}",
            f"{accepted_share(total):.0%}",
            f"{total.draft_us_per_step:.0f}",
        )
        rows.append((f"{run.drafter}, {run.setting}", str(run.budget), *lengths, *costs))
    title = f"{len(traces)} texts: tokens per step of a model that writes them"
    print_table(title, ("drafter", "draft tokens", *kinds, "all", "accepted", "us per step"), rows)
    console().print(
        "Tokens per step: 1 without drafts. Accepted: of the draft tokens. us per step: drafting, on one thread."
    )


def accepted_share(stats: ReplayStats) -> float:
    return stats.num_accepted / stats.num_drafted if stats.num_drafted else 0.0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What --json has for each drafter, setting, budget and kind of text."""

    drafter: str
    setting: str
    budget: int
    kind: str
    tokens_per_step: float
    num_tokens: int
    num_steps: int
    num_drafted: int
    num_accepted: int
    draft_us_per_step: float


def to_json(runs: Sequence[Run]) -> str:
    rows = [
        Row(
            drafter=run.drafter,
            setting=run.setting,
            budget=run.budget,
            kind=kind,
            tokens_per_step=stats.mean_acceptance_length,
            num_tokens=stats.num_tokens,
            num_steps=stats.num_steps,
            num_drafted=stats.num_drafted,
            num_accepted=stats.num_accepted,
            draft_us_per_step=stats.draft_us_per_step,
        )
        for run in runs
        for kind, stats in run.kinds.items()
    ]
    return msgspec.json.format(msgspec.json.encode({"runs": rows}), indent=2).decode()
