"""The HTML report of a run: its figures, how latencies are distributed, and how it went over time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from specserve_bench.output.page import Plot, Section, Table, page
from specserve_bench.output.plots import Curve, Labels, curves
from specserve_bench.serve.present import COLUMNS, acceptance_cells, cells, latency_rows, stop_rows, totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_bench.client.records import RequestRecord
    from specserve_bench.figures.summary import Summary
    from specserve_bench.serve.settings import Settings

MAX_POINTS = 400
"""Of a curve: more are not seen."""


def report(title: str, settings: Settings, summary: Summary, records: Sequence[RequestRecord]) -> str:
    latencies = Table(("milliseconds", *COLUMNS), [(label, *cells(times)) for label, times in latency_rows(summary)])
    sections = [Section("Figures", [Table(("", ""), totals(summary)), latencies])]
    if summary.acceptance:
        rows = [(name, *acceptance_cells(counts)) for name, counts in summary.acceptance.items()]
        sections.append(Section("Draft tokens", [Table(("drafter", "drafted", "accepted", "share"), rows)]))
    if summary.stops:
        title = "Steps, by why they accepted no more draft tokens"
        sections.append(Section(title, [Table(("", "steps", "share"), stop_rows(summary))]))
    good = [record for record in records if record.failure is None]
    if good:
        sections += [Section("Latencies", latency_plots(good)), Section("Over time", [Plot(over_time(good))])]
    asked = [(name, str(value)) for name, value in msgspec.to_builtins(settings).items() if value is not None]
    return page(title, [*sections, Section("Settings", [Table(("", ""), asked)])])


def latency_plots(good: Sequence[RequestRecord]) -> list[Plot]:
    """By kind of prompt."""
    kinds = list(dict.fromkeys(record.kind for record in good))
    first = {kind: [record.first for record in good if record.kind == kind and record.first] for kind in kinds}
    whole = {kind: [record.last for record in good if record.kind == kind] for kind in kinds}
    gaps = {kind: [gap for record in good if record.kind == kind for gap in record.gaps] for kind in kinds}
    every = {"Time to first token": first, "Whole answer": whole, "Between events": gaps}
    return [
        Plot(curves(Labels(title, "milliseconds", "share of all"), [shares(kind, each[kind]) for kind in kinds]))
        for title, each in every.items()
    ]


def shares(name: str, seconds: Sequence[float]) -> Curve:
    """Which share of all takes at most so long."""
    ranked = sorted(seconds)
    step = max(1, len(ranked) // MAX_POINTS)
    places = [*range(0, len(ranked), step), *([len(ranked) - 1] if ranked else [])]
    return Curve(name, [1000 * ranked[at] for at in places], [(at + 1) / len(ranked) for at in places])


def over_time(good: Sequence[RequestRecord]) -> str:
    """Requests under way, and requests that ended, in each of up to 60 equal parts of the run."""
    end = max(record.ended for record in good)
    width = end / 60 or 1.0
    ended = Counter(min(int(record.ended / width), 59) for record in good)
    times = [(at + 0.5) * width for at in range(60)]
    running = [float(sum(record.sent <= time < record.ended for record in good)) for time in times]
    done = [float(ended[at]) for at in range(60)]
    lines = [Curve("under way", times, running), Curve("ended", times, done)]
    return curves(Labels("Requests", "seconds since the begin", "requests"), lines)
