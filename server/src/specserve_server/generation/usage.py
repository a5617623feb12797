"""Token counts and speculation statistics of a response, summed over its choices."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.types import SpeculationStats
    from specserve_checks.json_types import JsonObject
    from specserve_server.generation.choices import Choice


def usage(choices: Sequence[Choice], n: int) -> JsonObject:
    """OpenAI's `usage`; a prompt counts once, however many choices it has."""
    firsts = choices[::n]
    prompt_tokens = sum(len(choice.request.prompt_token_ids) for choice in firsts)
    completion_tokens = sum(choice.num_tokens for choice in choices)
    counts: JsonObject = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(choice.cached_tokens for choice in firsts)},
    }
    if any(choice.reasoning is not None for choice in choices):
        details: JsonObject = {"reasoning_tokens": sum(choice.reasoning_tokens for choice in choices)}
        counts["completion_tokens_details"] = details
    return counts


def speculation_metrics(choices: Sequence[Choice]) -> JsonObject:
    """`{"metrics": {"speculative_decoding": ...}}`, or nothing without a verified draft and a telling planner."""
    stats = [choice.stats for choice in choices if choice.stats is not None]
    num_steps = sum(each.num_spec_steps for each in stats)
    planned = [each.planner for each in stats if each.planner is not None]
    if num_steps == 0 and not planned:
        return {}
    num_draft = sum(each.num_draft_tokens for each in stats)
    num_accepted = sum(each.num_accepted_draft_tokens for each in stats)
    histograms = zip_longest(*(each.acceptance_histogram for each in stats), fillvalue=0)
    statistics: JsonObject = {
        "mean_acceptance_length": 1 + (num_accepted / num_steps if num_steps else 0.0),
        "draft_acceptance_rate": num_accepted / num_draft if num_draft else 0.0,
        "acceptance_histogram": [sum(counts) for counts in histograms],
        "num_spec_steps": num_steps,
        "num_accepted_draft_tokens": num_accepted,
        "num_draft_tokens": num_draft,
    }
    if by_drafter := drafter_counts(stats):
        statistics["drafters"] = by_drafter
    if planned:
        steps: Counter[str] = sum((Counter(one.steps) for one in planned), Counter())
        predicted = sum(one.predicted_accepted_tokens for one in planned)
        statistics["planner"] = {"steps": dict(steps), "predicted_accepted_tokens": predicted}
    return {"metrics": {"speculative_decoding": statistics}}


def drafter_counts(stats: Sequence[SpeculationStats]) -> JsonObject:
    """Of each drafter the draft tokens that were verified, and those that were accepted."""
    drafted: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for one in stats:
        for name, counts in one.by_drafter.items():
            drafted[name] += counts.num_draft_tokens
            accepted[name] += counts.num_accepted_draft_tokens
    return {
        name: {"num_accepted_draft_tokens": accepted[name], "num_draft_tokens": drafted[name]}
        for name in sorted(drafted)
    }
