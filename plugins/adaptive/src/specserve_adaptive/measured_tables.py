"""What of measured passes can be believed: a load on the machine makes them slower, and nothing makes them faster."""

from __future__ import annotations

from itertools import accumulate
from math import ceil, inf

from specserve.api import CostTable


def plausible(table: CostTable) -> CostTable:
    """Without what only a load explains: no pass takes longer than one of more rows, or than several of fewer rows that
    compute as many."""
    bounded: list[float] = []
    for rows, seconds in zip(table.rows, table.seconds, strict=True):
        by_fewer = (ceil(rows / fewer) * each for fewer, each in zip(table.rows, bounded, strict=False))
        bounded.append(min((seconds, *by_fewer)))
    return table._replace(seconds=list(accumulate(reversed(bounded), min))[::-1])


def fastest(one: CostTable, other: CostTable) -> CostTable:
    """Each pass as fast as it was seen in either."""
    best = dict(zip(one.rows, one.seconds, strict=True))
    for rows, seconds in zip(other.rows, other.seconds, strict=True):
        best[rows] = min(best.get(rows, inf), seconds)
    per_key = min(filter(None, (one.per_key, other.per_key)), default=0.0)  # 0 where there was no time for it
    return CostTable(sorted(best), [best[rows] for rows in sorted(best)], per_key, one.buckets)
