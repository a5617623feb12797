"""Service-level objectives: what a request's latencies may be for it to count as good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_bench.client.records import RequestRecord


class Objectives(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Milliseconds; None: any. A request of one token has no time between tokens, and meets that objective."""

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    def are_met(self, record: RequestRecord) -> bool:
        if record.failure or record.first is None:
            return False
        pairs = ((self.ttft, record.first), (self.tpot, record.seconds_per_token or 0.0), (self.e2e, record.last))
        return all(bound is None or seconds * 1000 <= bound for bound, seconds in pairs)


NAMES = Objectives.__struct_fields__


def parse_objectives(words: Sequence[str]) -> Objectives | None:
    """`["ttft=500", "tpot=50"]`; None of none. ConfigError says which word is wrong."""
    bounds: dict[str, float] = {}
    for word in words:
        name, _, number = word.partition("=")
        try:
            bounds[name] = float(number)
        except ValueError:
            bounds[name] = 0.0
        if name not in NAMES or not 0 < bounds[name] < float("inf"):
            raise ConfigError(
                f"bench: --slo takes {', '.join(NAMES)} with milliseconds, such as ttft=500; got {word!r}."
            )
    return Objectives(**bounds) if bounds else None
