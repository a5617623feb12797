"""How often and how many at once one client may ask: a bucket of requests per minute, and a count of running ones.

A bucket holds as many requests as are allowed per minute and is refilled evenly, so that a client that was quiet may
send them at once. Knows nothing about HTTP or about who clients are.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from specserve_server.errors import RateLimitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_BUCKETS = 4096
"""This many clients are remembered before those whose buckets are full again are forgotten."""


class Bucket(NamedTuple):
    num_left: float
    at: float


class RateLimits:
    """None: no limit."""

    def __init__(
        self, per_minute: int | None, concurrent: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_minute, self._concurrent, self._clock = per_minute, concurrent, clock
        self._buckets: dict[str, Bucket] = {}
        self._running: Counter[str] = Counter()

    @contextmanager
    def admitted(self, client: str) -> Iterator[None]:
        """For as long as a request runs. Raises RateLimitError; what is refused does not count."""
        if self._concurrent is not None and self._running[client] >= self._concurrent:
            raise RateLimitError(
                f"{self._running[client]} requests of yours are running, as many as this server allows; wait.",
                retry_after=1,
            )
        if self._per_minute is not None:
            self._take(client, self._per_minute)
        self._running[client] += 1
        try:
            yield
        finally:
            self._running[client] -= 1
            if not self._running[client]:
                del self._running[client]

    def _take(self, client: str, per_minute: int) -> None:
        num_left, now = self._num_left(client, per_minute), self._clock()
        if num_left < 1:
            seconds = math.ceil((1 - num_left) * 60 / per_minute)
            raise RateLimitError(
                f"this server allows {per_minute} requests per minute and client; try again in {seconds} s.",
                retry_after=seconds,
            )
        self._buckets[client] = Bucket(num_left - 1, now)
        if len(self._buckets) > MAX_BUCKETS:
            full = [name for name in self._buckets if self._num_left(name, per_minute) >= per_minute]
            for name in full:
                del self._buckets[name]

    def _num_left(self, client: str, per_minute: int) -> float:
        now = self._clock()
        bucket = self._buckets.get(client, Bucket(per_minute, now))
        return min(per_minute, bucket.num_left + (now - bucket.at) * per_minute / 60)
