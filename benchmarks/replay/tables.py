"""The tables of the replay benchmark, and its numbers for the JSON file.

Knows statistics by drafter variant, budget and kind, and no drafter.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.report import aligned
from specserve_bench.replay.harness import DrafterVariant, by_kind
from specserve_bench.replay.stats import NUM_BINS, Bin, ReplayStats, max_calibration_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve_bench.replay.trace import Trace

Row = tuple[str, ...]


class Run(NamedTuple):
    """One variant on all traces at one budget."""

    variant: DrafterVariant
    budget: int
    replayed: list[tuple[Trace, ReplayStats]]

    @property
    def label(self) -> str:
        return f"{self.variant.name}, {self.variant.setting}"

    @property
    def total(self) -> ReplayStats:
        return sum((stats for _, stats in self.replayed), ReplayStats())


def main_table(runs: Sequence[Run]) -> tuple[Row, list[Row]]:
    """Columns and rows: a heading row for each budget, then one for each variant."""
    kinds = list(by_kind(runs[0].replayed))
    columns = ("drafter", *(cell for kind in kinds for cell in (kind, "us/step")), "us/prompt token")
    rows: list[Row] = []
    for budget, group in groupby(runs, key=lambda run: run.budget):
        rows.append((f"-- budget {budget}", *("" for _ in columns[1:])))
        for run in group:
            stats = by_kind(run.replayed)
            cells = [
                cell for kind in kinds for cell in (acceptance(stats[kind]), f"{stats[kind].draft_us_per_step:.1f}")
            ]
            rows.append((run.label, *cells, f"{run.total.ingest_us_per_token:.2f}"))
    return columns, rows


def calibration_table(runs: Sequence[Run]) -> str:
    """All drafted nodes by the tenth of their estimated survival; the calibration error over all and of each kind."""
    kinds = list(by_kind(runs[0].replayed))
    rows: list[Row] = [("budget, drafter", *(f".{i}-" for i in range(NUM_BINS)), "max error", *kinds)]
    for run in runs:
        bins = run.total.bins
        num_nodes = sum(bin.num_nodes for bin in bins)
        if num_nodes:
            stats = by_kind(run.replayed)
            errors = [max_calibration_error(each) for each in (bins, *(stats[kind].bins for kind in kinds))]
            rows.append(
                (
                    f"{run.budget:2} {run.label}",
                    *(bin_cell(bin, num_nodes) for bin in bins),
                    *(f"{error:.3f}" for error in errors),
                )
            )
    heading = (
        "Calibration of estimated survival, by tenths: mean estimate, observed share, share of nodes; max error: the "
        "largest |estimate - observed| of tenths with 1 % of the nodes or more, over all and by kind"
    )
    return "\n".join([heading, *aligned(rows)])


def bin_cell(bin: Bin, num_nodes: int) -> str:
    if not bin.num_nodes:
        return "-"
    return f"{hundredths(bin.estimated)} {hundredths(bin.observed)} {bin.num_nodes / num_nodes:3.0%}"


def efficiency_table(sweep: Sequence[tuple[float, Run]], references: Sequence[Run]) -> str:
    """ngram by `min_survival`, and interpolated to where it drafts as many nodes per accepted one as a reference."""
    kinds = list(by_kind(sweep[0][1].replayed))
    rows: list[Row] = [("budget, drafter, min_survival", *kinds)]
    groups: dict[tuple[int, str, str], list[tuple[float, Run]]] = {}
    for min_survival, run in sweep:
        groups.setdefault((run.budget, run.label, run.variant.setting), []).append((min_survival, run))
    for (budget, label, setting), group in groups.items():
        swept = [by_kind(run.replayed) for _, run in group]
        for (min_survival, _), stats in zip(group, swept, strict=True):
            rows.append((f"{budget:2} {label}, {min_survival}", *(acceptance(stats[kind]) for kind in kinds)))
        # A setting that the reference lacks (cold, statistics kept) is compared with its cold one.
        for reference in references:
            if reference.budget == budget and reference.variant.setting == ("warm" if setting == "warm" else "cold"):
                rows += comparison(f"{budget:2} {label}", kinds, swept, reference)
    heading = "Draft efficiency: mean acceptance length (drafted per accepted node) by min_survival"
    return "\n".join([heading, *aligned(rows)])


def comparison(
    label: str, kinds: Sequence[str], swept: Sequence[Mapping[str, ReplayStats]], reference: Run
) -> list[Row]:
    other = by_kind(reference.replayed)
    at_equal = [at_equal_efficiency([stats[kind] for stats in swept], other[kind]) for kind in kinds]
    return [
        (f"{reference.budget:2} {reference.label}", *(acceptance(other[kind]) for kind in kinds)),
        (f"{label}, at equal drafted per accepted", *at_equal),
    ]


def at_equal_efficiency(swept: Sequence[ReplayStats], reference: ReplayStats) -> str:
    """Mean acceptance length at the reference's drafted per accepted node, interpolated between two points."""
    wanted = reference.drafted_per_accepted
    points = sorted((stats.drafted_per_accepted, stats.mean_acceptance_length) for stats in swept)
    for (low, at_low), (high, at_high) in pairwise(points):
        if low <= wanted <= high and high > low:
            return f"{at_low + (at_high - at_low) * (wanted - low) / (high - low):.2f} ({wanted:.2f})"
    return "outside the sweep"


def raw_numbers(runs: Sequence[Run]) -> dict[str, list[float]]:
    """By trace: mean acceptance length, drafted per accepted node, us per step. By kind: the bins' estimates, observed
    shares and node counts. Runs with the same label follow each other, in order of `min_survival`."""
    raw: dict[str, list[float]] = {}
    for run in runs:
        for trace, stats in run.replayed:
            key = f"{run.label}, {run.budget}, {trace.kind}, {trace.name}"
            numbers = [stats.mean_acceptance_length, stats.drafted_per_accepted, stats.draft_us_per_step]
            raw.setdefault(key, []).extend(numbers)
        for kind, stats in by_kind(run.replayed).items():
            bins = stats.bins
            row = [*(b.estimated for b in bins), *(b.observed for b in bins), *(float(b.num_nodes) for b in bins)]
            raw.setdefault(f"{run.label}, {run.budget}, {kind}, calibration", []).extend(row)
    return raw


def acceptance(stats: ReplayStats) -> str:
    return f"{stats.mean_acceptance_length:.2f} ({stats.drafted_per_accepted:.2f})"


def hundredths(share: float) -> str:
    return f"{share:.2f}".lstrip("0")
