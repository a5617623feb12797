"""What speculation did for an answer, summed over its choices."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.types import PlannerStats, SpeculationStats
    from specserve_server.generation.choices import Choice


class DrafterCounts(msgspec.Struct):
    num_accepted_draft_tokens: int
    num_draft_tokens: int


class PlannerCounts(msgspec.Struct):
    steps: dict[str, int]
    predicted_accepted_tokens: float


class SpeculationStatistics(msgspec.Struct):
    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[int]
    num_spec_steps: int
    num_accepted_draft_tokens: int
    num_draft_tokens: int
    drafters: dict[str, DrafterCounts] | UnsetType = UNSET
    planner: PlannerCounts | UnsetType = UNSET


class Metrics(msgspec.Struct):
    """Where drafts were verified."""

    speculative_decoding: SpeculationStatistics


def speculation_metrics(choices: Sequence[Choice]) -> Metrics | UnsetType:
    """Unset without a verified draft and a telling planner."""
    stats = [choice.stats for choice in choices if choice.stats is not None]
    num_steps = sum(each.num_spec_steps for each in stats)
    planned = [each.planner for each in stats if each.planner is not None]
    if num_steps == 0 and not planned:
        return UNSET
    num_draft = sum(each.num_draft_tokens for each in stats)
    num_accepted = sum(each.num_accepted_draft_tokens for each in stats)
    histograms = zip_longest(*(each.acceptance_histogram for each in stats), fillvalue=0)
    statistics = SpeculationStatistics(
        mean_acceptance_length=1 + (num_accepted / num_steps if num_steps else 0.0),
        draft_acceptance_rate=num_accepted / num_draft if num_draft else 0.0,
        acceptance_histogram=[sum(counts) for counts in histograms],
        num_spec_steps=num_steps,
        num_accepted_draft_tokens=num_accepted,
        num_draft_tokens=num_draft,
        drafters=drafter_counts(stats) or UNSET,
        planner=planner_counts(planned) if planned else UNSET,
    )
    return Metrics(statistics)


def drafter_counts(stats: Sequence[SpeculationStats]) -> dict[str, DrafterCounts]:
    """Of each drafter the draft tokens that were verified, and those that were accepted."""
    drafted: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for one in stats:
        for name, counts in one.by_drafter.items():
            drafted[name] += counts.num_draft_tokens
            accepted[name] += counts.num_accepted_draft_tokens
    return {name: DrafterCounts(accepted[name], drafted[name]) for name in sorted(drafted)}


def planner_counts(planned: Sequence[PlannerStats]) -> PlannerCounts:
    steps: Counter[str] = sum((Counter(one.steps) for one in planned), Counter())
    return PlannerCounts(dict(steps), sum(one.predicted_accepted_tokens for one in planned))
