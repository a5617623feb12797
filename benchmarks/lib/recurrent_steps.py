"""Steps of models with recurrent layers or without: committed tokens, draft tokens, and what was accepted before.

A request owns two states in turns, as in the engine: a step reads the one and writes the other. What they hold is left
over from earlier steps; the cost does not depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch

from benchmarks.lib.forwards import BLOCK_SIZE
from specserve.batch.builder import BatchBuilder
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve.batch.span_states import SpanStates
from specserve.kv.states import OwnSlots
from specserve.types import Draft, GenerateRequest

if TYPE_CHECKING:
    from specserve.batch.batch import Batch


class Step(NamedTuple):
    """Of each of some requests."""

    requests: int = 1
    known: int = 1
    """Committed tokens that are computed."""
    drafted: int = 0
    followed: int = 0
    """Draft tokens of the step before that were accepted."""
    turned: bool = False
    """Reads the states that are otherwise written."""

    def batch(self, context: int) -> Batch:
        """Its committed tokens are the last of `context`; logits are of every row."""
        spans = [self.span(order, context) for order in range(self.requests)]
        return BatchBuilder(BLOCK_SIZE, torch.device("cpu")).schedule(spans)

    def span(self, order: int, context: int) -> ScheduledSpan:
        blocks_each = -(-(context + self.drafted) // BLOCK_SIZE)
        request = Request.admit(
            GenerateRequest(request_id=f"r{order}", prompt_token_ids=tuple(i % 300 for i in range(context))),
            seed=0, arrival=0.0, order=order, max_len=context + self.drafted + 1,
        )  # fmt: skip
        request.blocks = list(range(order * blocks_each, (order + 1) * blocks_each))
        draft = Draft(tokens=tuple(range(self.drafted))) if self.drafted else None
        start = context - self.known
        span = ScheduledSpan.of(request, start, self.known, scored=self.known + self.drafted, draft=draft)
        own = OwnSlots(2 * order + 1, 2 * order + 2)
        source, target = reversed(own) if self.turned else own
        places = SpanStates(start - self.followed, source, tuple(range(self.followed)), target)
        return msgspec.structs.replace(span, states=places)
