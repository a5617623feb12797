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
    times = [(label, *cells(each)) for label, each in latency_rows(summary)]
    figures = [Table("Figures", ("", ""), totals(summary)), Table("Latencies", ("milliseconds", *COLUMNS), times)]
    sections = [Section("Figures", figures)]
    if summary.acceptance:
        rows = [(name, *acceptance_cells(counts)) for name, counts in summary.acceptance.items()]
        table = Table("Draft tokens", ("drafter", "drafted", "accepted", "share"), rows)
        sections.append(Section("Draft tokens", [table]))
    if summary.stops:
        table = Table("Steps", ("why", "steps", "share"), stop_rows(summary))
        sections.append(Section("Steps, by why they accepted no more draft tokens", [table]))
    good = [record for record in records if record.failure is None]
    if good:
        sections += [Section("Latencies", latency_plots(good)), Section("Over time", [over_time(good)])]
    asked = Table("Settings", ("", ""), settings_rows(settings))
    return page(title, [*sections, Section("Settings", [asked])])


def settings_rows(settings: Settings) -> list[tuple[str, str]]:
    """Without those that nobody chose."""
    chosen = {name: value for name, value in msgspec.to_builtins(settings).items() if value is not None}
    return [(name.replace("_", " "), in_words(value)) for name, value in chosen.items()]


def in_words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {in_words(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def latency_plots(good: Sequence[RequestRecord]) -> list[Plot]:
    """By kind of prompt."""
    kinds = list(dict.fromkeys(record.kind for record in good))
    first = {kind: [record.first for record in good if record.kind == kind and record.first] for kind in kinds}
    whole = {kind: [record.last for record in good if record.kind == kind] for kind in kinds}
    gaps = {kind: [gap for record in good if record.kind == kind for gap in record.gaps] for kind in kinds}
    every = {"Time to first token": first, "Whole answer": whole, "Between events": gaps}
    return [
        Plot(title, curves(Labels(title, "milliseconds", "share of all"), [shares(kind, each[kind]) for kind in kinds]))
        for title, each in every.items()
    ]


def shares(name: str, seconds: Sequence[float]) -> Curve:
    """Which share of all takes at most so long."""
    ranked = sorted(seconds)
    step = max(1, len(ranked) // MAX_POINTS)
    places = [*range(0, len(ranked), step), *([len(ranked) - 1] if ranked else [])]
    return Curve(name, [1000 * ranked[at] for at in places], [(at + 1) / len(ranked) for at in places])


def over_time(good: Sequence[RequestRecord]) -> Plot:
    """Requests under way, and requests that ended, in each of up to 60 equal parts of the run."""
    end = max(record.ended for record in good)
    width = end / 60 or 1.0
    ended = Counter(min(int(record.ended / width), 59) for record in good)
    times = [(at + 0.5) * width for at in range(60)]
    running = [float(sum(record.sent <= time < record.ended for record in good)) for time in times]
    done = [float(ended[at]) for at in range(60)]
    lines = [Curve("under way", times, running), Curve("ended", times, done)]
    labels = Labels("Requests", "seconds since the begin", "requests")
    return Plot("Requests under way and requests that ended, over time", curves(labels, lines))
