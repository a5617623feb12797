"""An engine that steps until all requests have ended, timed in slices and only where all of them run.

From the step in which the last request gets its first token to the one in which the first request ends: so as many
requests decode together in all that is timed, however long their texts are. Slices have as many tokens in every
engine, so that engines in turns need as many turns, however fast they are. Knows no engine.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from wire import Reply

SLICE_TOKENS = 800
"""Of all requests; then other engines run, and the first step after that is not timed. One request has one slice."""


class Emitted(NamedTuple):
    """What one step gave one request."""

    request_id: str
    tokens: Iterable[int]
    ended: bool


class Requests:
    """What they have emitted, and which of them still run."""

    def __init__(self, request_ids: list[str]) -> None:
        self.outputs: dict[str, list[int]] = {request_id: [] for request_id in request_ids}
        self.running = set(request_ids)

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.outputs.values()))

    def take(self, emitted: Iterable[Emitted]) -> None:
        for one in emitted:
            self.outputs[one.request_id] += one.tokens
            if one.ended:
                self.running.remove(one.request_id)


def decode_together(step: Callable[[], Iterable[Emitted]], request_ids: list[str]) -> Iterator[Reply]:
    """The requests have been added to the engine that `step` advances. First comes an empty slice, after prefill."""
    requests = Requests(request_ids)
    while not all(requests.outputs.values()):
        requests.take(step())
    yield {"seconds": 0.0, "num_tokens": 0}
    while len(requests.running) == len(request_ids):
        requests.take(step())
        before, began = requests.num_tokens, time.perf_counter()
        enough = before + SLICE_TOKENS
        while len(requests.running) == len(request_ids) and requests.num_tokens < enough:
            requests.take(step())
        yield {"seconds": time.perf_counter() - began, "num_tokens": requests.num_tokens - before}
    while requests.running:
        requests.take(step())
    yield {"outputs": list(requests.outputs.values())}
