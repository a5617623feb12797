"""The tables of the replay benchmark, and its figures for the JSON file.

Owns their layout. Knows figures by contender, budget and kind, and no drafter.
"""

from __future__ import annotations

from functools import reduce
from itertools import groupby, pairwise
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.report import aligned
from benchmarks.replay.harness import Contender, by_kind
from benchmarks.replay.stats import Figures, worst_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.replay.texts import Stream

Row = tuple[str, ...]


class Run(NamedTuple):
    """One contender on all streams at one budget."""

    contender: Contender
    budget: int
    replayed: list[tuple[Stream, Figures]]

    @property
    def label(self) -> str:
        return f"{self.contender.name}, {self.contender.setting}"

    @property
    def total(self) -> Figures:
        return reduce(or_, (figures for _, figures in self.replayed), Figures())


def main_table(runs: Sequence[Run]) -> tuple[Row, list[Row]]:
    """Columns and rows: a heading row for each budget, then one for each contender."""
    kinds = list(by_kind(runs[0].replayed))
    columns = ("drafter", *(cell for kind in kinds for cell in (kind, "us")), "take-in")
    rows: list[Row] = []
    for budget, group in groupby(runs, key=lambda run: run.budget):
        rows.append((f"-- budget {budget}", *("" for _ in columns[1:])))
        for run in group:
            figures = by_kind(run.replayed)
            cells = [cell for kind in kinds for cell in (accepts(figures[kind]), f"{figures[kind].us_per_call:.1f}")]
            rows.append((run.label, *cells, f"{run.total.start_us_per_token:.2f}"))
    return columns, rows


def calibration_table(runs: Sequence[Run]) -> str:
    """Every drafted node of all kinds, by the tenth in which its stated survival lies; the worst tenth of each kind."""
    kinds = list(by_kind(runs[0].replayed))
    rows: list[Row] = [("budget, drafter", *(f".{i}-" for i in range(10)), "worst", *kinds)]
    for run in runs:
        bins = run.total.bins
        num_nodes = sum(bin.num_nodes for bin in bins)
        if num_nodes:
            cells = [
                f"{hundredths(b.estimated)} {hundredths(b.observed)} {b.num_nodes / num_nodes:3.0%}"
                if b.num_nodes
                else "-"
                for b in bins
            ]
            by_each = by_kind(run.replayed)
            worst = [f"{worst_error(each):.3f}" for each in (bins, *(by_each[kind].bins for kind in kinds))]
            rows.append((f"{run.budget:2} {run.label}", *cells, *worst))
    heading = (
        "Calibration of stated survival: estimated, observed, share of nodes; worst |estimated - observed| of tenths "
        "with 1 % of the nodes or more, over all and by kind"
    )
    return "\n".join([heading, *aligned(rows)])


def thrift_table(cut_runs: Sequence[tuple[float, Run]], references: Sequence[Run]) -> str:
    """Our drafter by cut of survival, and what it accepts where it drafts as much per accept as the reference."""
    kinds = list(by_kind(cut_runs[0][1].replayed))
    rows: list[Row] = [("budget, drafter, cut", *kinds)]
    groups: dict[tuple[int, str, str], list[tuple[float, Run]]] = {}
    for cut, run in cut_runs:
        groups.setdefault((run.budget, run.label, run.contender.setting), []).append((cut, run))
    for (budget, label, setting), group in groups.items():
        found = [by_kind(run.replayed) for _, run in group]
        for (cut, _), figures in zip(group, found, strict=True):
            rows.append((f"{budget:2} {label}, {cut}", *(accepts(figures[kind]) for kind in kinds)))
        # a setting that the reference lacks (cold, table kept) is compared with its cold one
        for reference in references:
            if reference.budget == budget and reference.contender.setting == ("warm" if setting == "warm" else "cold"):
                theirs = by_kind(reference.replayed)
                rows.append((f"{budget:2} {reference.label}", *(accepts(theirs[kind]) for kind in kinds)))
                at_equal = [same_thrift([ours[kind] for ours in found], theirs[kind]) for kind in kinds]
                rows.append((f"{budget:2} {label}, drafting as much", *at_equal))
    return "\n".join(["Thrift: mean accept length (drafted per accepted) by cut of survival", *aligned(rows)])


def same_thrift(figures: Sequence[Figures], reference: Figures) -> str:
    """Mean accept length at the reference's drafted per accepted, between the two cuts around it."""
    wanted = reference.drafted_per_accepted
    points = sorted((one.drafted_per_accepted, one.mean_accept_len) for one in figures)
    for (low, at_low), (high, at_high) in pairwise(points):
        if low <= wanted <= high and high > low:
            return f"{at_low + (at_high - at_low) * (wanted - low) / (high - low):.2f} ({wanted:.2f})"
    return "beyond the cuts"


def raw_figures(runs: Sequence[Run]) -> dict[str, list[float]]:
    """Each stream's mean accept length, drafted per accepted and us; and the bins of each kind: estimated, observed,
    nodes. Runs of one name follow each other, in the order of the cuts."""
    raw: dict[str, list[float]] = {}
    for run in runs:
        for stream, one in run.replayed:
            key = f"{run.label}, {run.budget}, {stream.kind}, {stream.name}"
            raw.setdefault(key, []).extend([one.mean_accept_len, one.drafted_per_accepted, one.us_per_call])
        for kind, figures in by_kind(run.replayed).items():
            bins = figures.bins
            row = [*(b.estimated for b in bins), *(b.observed for b in bins), *(float(b.num_nodes) for b in bins)]
            raw.setdefault(f"{run.label}, {run.budget}, {kind}, calibration", []).extend(row)
    return raw


def accepts(figures: Figures) -> str:
    return f"{figures.mean_accept_len:.2f} ({figures.drafted_per_accepted:.2f})"


def hundredths(share: float) -> str:
    return f"{share:.2f}".lstrip("0")
