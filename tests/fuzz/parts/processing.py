"""A logits processor that looks at the path: it lowers what came last, its successor, and a token that depends on the
length. By `apply`, which takes the whole row, or by `edit`."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from specserve.protocols import LogitsProcessor, ProcessorState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.request import Request
    from specserve.protocols import LogitEdits

PENALTY = -1.5


class Avoid(ProcessorState):
    """Its state for one request."""

    def __init__(self, request: Request, vocab_size: int) -> None:
        self.tokens, self.vocab_size = list(request.tokens), vocab_size

    def ids(self, path: Sequence[int]) -> list[int]:
        last = path[-1] if path else self.tokens[-1]
        length = len(self.tokens) + len(path)
        return list(dict.fromkeys((last, (last + 1) % self.vocab_size, length % self.vocab_size)))

    def apply(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        logits[self.ids(path)] += PENALTY
        return logits

    def commit(self, tokens: Sequence[int]) -> None:
        self.tokens += tokens


class AvoidByEdits(Avoid):
    has_edits = True

    def edit(self, edits: LogitEdits, path: Sequence[int]) -> None:
        ids = self.ids(path)
        edits.shift(array("q", ids), array("f", [PENALTY] * len(ids)))


class Processor(LogitsProcessor):
    """Of two requests in three. The engine under test has one of its own: see `faulty.FaultyProcessor`."""

    def __init__(self, kind: str) -> None:
        self.make = {"apply": Avoid, "edit": AvoidByEdits}[kind]
        self.left_out = False
        """Requests that start now do without."""

    def start(self, request: Request, vocab_size: int) -> Avoid | None:
        if self.left_out or request.prompt_len % 3 == 0:
            return None
        return self.make(request, vocab_size)
