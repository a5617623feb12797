"""The server's metrics as numbers, summed over their labels or one by one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp


async def read_metrics(session: aiohttp.ClientSession) -> Counter[str]:
    """By name without labels; and by name with those of other labels than model and engine."""
    async with session.get("/metrics") as answer:
        return parse(await answer.text())


def parse(text: str) -> Counter[str]:
    values: Counter[str] = Counter()
    for line in text.splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            values[series.partition("{")[0]] += float(value)  # type: ignore[assignment]
            if "{" in series:
                values[series] += float(value)  # type: ignore[assignment]
    return values
