"""All figures of one run, by the definitions of `vllm bench serve`. Failed requests count in `failures` only."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from specserve_bench.client.records import DraftCounts
from specserve_bench.figures.distribution import Distribution, distribution
from specserve_bench.figures.objectives import Objectives

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from specserve_bench.client.records import RequestRecord


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """None where no request has such a time."""

    ttft: Distribution | None
    """From sending to the first token."""
    tpot: Distribution | None
    """Of each request, the mean time between its tokens after the first."""
    itl: Distribution | None
    """Between one event with tokens and the next. With accepted drafts an event has several tokens."""
    e2e: Distribution | None
    """From sending to the last token."""


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    objectives: Objectives
    share: float
    """Of all requests, failed ones too."""
    requests_per_second: float


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """Draft tokens of one drafter."""

    drafted: int
    accepted: int

    @property
    def share(self) -> float:
        return self.accepted / self.drafted if self.drafted else 0.0


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    num_requests: int
    num_good: int
    """With their whole answers."""
    failures: dict[str, int]
    """By kind."""
    seconds: float
    """From the begin of the run until the last answer ended."""
    prompt_tokens: int
    output_tokens: int
    requests_per_second: float
    output_tokens_per_second: float
    total_tokens_per_second: float
    """With those of prompts."""
    tokens_counted_by: str
    """usage: as the server states them; events: one for each event, where a server states none."""
    latencies: Latencies
    goodput: Goodput | None = None
    acceptance: dict[str, Acceptance] | None = None
    """By drafter."""
    tokens_per_step: float | None = None
    """Output tokens for each token that the model added itself, of requests whose drafts are known."""
    stops: dict[str, int] = {}
    """Steps by why they accepted no more draft tokens, the most frequent first; none where nothing tells it."""


def summarise(records: Sequence[RequestRecord], seconds: float, objectives: Objectives | None = None) -> Summary:
    good = [record for record in records if record.failure is None]
    prompt_tokens = sum(record.num_prompt_tokens for record in good)
    output_tokens = sum(record.num_tokens for record in good)
    rate = 1 / seconds if seconds else 0.0
    return Summary(
        num_requests=len(records),
        num_good=len(good),
        failures=dict(Counter(record.failure.kind for record in records if record.failure)),
        seconds=seconds,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        requests_per_second=len(good) * rate,
        output_tokens_per_second=output_tokens * rate,
        total_tokens_per_second=(prompt_tokens + output_tokens) * rate,
        tokens_counted_by="events" if any(record.counted == "events" for record in good) else "usage",
        latencies=latencies(good),
        goodput=goodput(records, objectives, rate) if objectives else None,
        acceptance=acceptance(good),
        tokens_per_step=tokens_per_step(good),
        stops=dict(sum((Counter(record.stops) for record in good), Counter[str]()).most_common()),
    )


def latencies(good: Sequence[RequestRecord]) -> Latencies:
    return Latencies(
        ttft=distribution([record.first for record in good if record.first is not None]),
        tpot=distribution([each for record in good if (each := record.seconds_per_token) is not None]),
        itl=distribution([gap for record in good for gap in record.gaps]),
        e2e=distribution([record.last for record in good]),
    )


def goodput(records: Sequence[RequestRecord], objectives: Objectives, rate: float) -> Goodput:
    num_met = sum(objectives.are_met(record) for record in records)
    share = num_met / len(records) if records else 0.0
    return Goodput(objectives=objectives, share=share, requests_per_second=num_met * rate)


def acceptance(good: Iterable[RequestRecord]) -> dict[str, Acceptance] | None:
    known = [record.drafters for record in good if record.drafters is not None]
    if not known:
        return None
    sums: dict[str, DraftCounts] = {}
    for drafters in known:
        for name, counts in drafters.items():
            sums[name] = sums.get(name, DraftCounts()) + counts
    return {name: Acceptance(drafted=counts.drafted, accepted=counts.accepted) for name, counts in sums.items()}


def tokens_per_step(good: Iterable[RequestRecord]) -> float | None:
    known = [record for record in good if record.drafters is not None and record.num_tokens]
    tokens = sum(record.num_tokens for record in known)
    accepted = sum(counts.accepted for record in known for counts in (record.drafters or {}).values())
    return tokens / (tokens - accepted) if tokens > accepted else None
