"""What came of a plan's requests, whichever front served them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from fuzz.results import Result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fuzz.plans import RequestPlan
    from specserve.protocols import Tokenizer


class Answered(NamedTuple):
    request: RequestPlan
    version: int
    """Of its adapter's weights."""
    result: Result


class Served:
    """The last answer under each id, and the beginnings of those that were aborted and sent again."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.last: dict[str, Answered] = {}
        self.begun: list[Answered] = []
        self.counts: Counter[str] = Counter()

    def begin(self, request: RequestPlan, version: int) -> Result:
        if request.id in self.last:
            self.begun.append(self.last[request.id])
        self.last[request.id] = Answered(request, version, Result(request, self.tokenizer))
        return self.last[request.id].result

    def all(self) -> Iterable[Answered]:
        yield from self.last.values()
        yield from self.begun
