"""How many answers of which status every route gave. Labels are bounded: no client can add a series by asking."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import hdrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

UNKNOWN = "unknown"
"""The route of paths that nobody serves."""
OTHER = "OTHER"
"""A method that HTTP does not name."""


class Answered(NamedTuple):
    method: str
    route: str
    status: str


class ResponseCounts:
    """Counted in the event loop, when an answer is complete."""

    def __init__(self) -> None:
        self.counts: Counter[Answered] = Counter()

    def add(self, method: str, route: str | None, status: int) -> None:
        """`route`: the pattern of a path, or None where nobody serves it."""
        known = method if method in hdrs.METH_ALL else OTHER
        self.counts[Answered(known, route or UNKNOWN, str(status))] += 1

    def include(self, counts: Mapping[Answered, int]) -> None:
        """What another process has counted."""
        self.counts.update(counts)

    def take(self) -> Counter[Answered]:
        """For another process, which includes it. Counting begins anew."""
        taken, self.counts = self.counts, Counter()
        return taken


def pattern_of(request: web.Request) -> str | None:
    """Of the route that an application found for a request: /v1/models/{name}."""
    resource = request.match_info.route.resource
    return None if resource is None else resource.canonical
