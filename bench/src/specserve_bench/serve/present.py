"""The table of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_bench.output.table import console, print_table

if TYPE_CHECKING:
    from specserve_bench.figures.distribution import Distribution
    from specserve_bench.figures.summary import Acceptance, Summary

TIMES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "between events",
    "e2e": "whole answer",
}
COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max")


def print_summary(title: str, summary: Summary) -> None:
    print_table(title, ("", ""), [*totals(summary)])
    print_table("milliseconds", ("", *COLUMNS), [(label, *cells(times)) for label, times in latency_rows(summary)])
    if summary.acceptance:
        rows = [(name, *acceptance_cells(counts)) for name, counts in summary.acceptance.items()]
        print_table("draft tokens", ("drafter", "drafted", "accepted", "share"), rows)
    print_table("steps, by why they accepted no more draft tokens", ("", "steps", "share"), stop_rows(summary))
    for line in notes(summary):
        console().print(line)


def totals(summary: Summary) -> list[tuple[str, str]]:
    rows = [
        ("requests answered", f"{summary.num_good} of {summary.num_requests}"),
        *((f"failed: {kind}", str(count)) for kind, count in summary.failures.items()),
        ("duration", f"{summary.seconds:.2f} s"),
        ("prompt tokens", f"{summary.prompt_tokens}"),
        ("output tokens", f"{summary.output_tokens}"),
        ("requests per second", f"{summary.requests_per_second:.2f}"),
        ("output tokens per second", f"{summary.output_tokens_per_second:.1f}"),
        ("all tokens per second", f"{summary.total_tokens_per_second:.1f}"),
    ]
    if summary.tokens_per_step is not None:
        rows.append(("tokens per step of the model", f"{summary.tokens_per_step:.2f}"))
    if summary.goodput:
        good = summary.goodput
        rows.append(("within the objectives", f"{good.share:.1%}, {good.requests_per_second:.2f} requests per second"))
    return rows


def latency_rows(summary: Summary) -> list[tuple[str, Distribution]]:
    times = ((label, getattr(summary.latencies, name)) for name, label in TIMES.items())
    return [(label, each) for label, each in times if each]


def cells(times: Distribution) -> list[str]:
    return [f"{getattr(times, column):.1f}" for column in COLUMNS]


def acceptance_cells(counts: Acceptance) -> tuple[str, str, str]:
    return str(counts.drafted), str(counts.accepted), f"{counts.share:.1%}"


def stop_rows(summary: Summary) -> list[tuple[str, str, str]]:
    total = sum(summary.stops.values())
    return [(why, str(count), f"{count / total:.1%}") for why, count in summary.stops.items()]


def notes(summary: Summary) -> list[str]:
    if summary.tokens_counted_by == "events":
        return [
            "The server states no usage in its streams: tokens were counted by events, "
            "of which each may have several tokens."
        ]
    return []
