"""A drafter that guesses that the last token is repeated: right in runs of blanks or dashes, cheap elsewhere.

Knows nothing about the model: verification decides which guesses are accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from specserve.hookspecs import hookimpl
from specserve.protocols import DrafterNeeds
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.types import ForwardOutput, Verdict


class RepeatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`--set repeat.width=4`"""

    width: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    """Guesses per step."""


class RepeatDrafter:
    """Proposes a chain of up to `width` copies of the last token, once that token has occurred twice in a row."""

    name = "repeat"
    needs = DrafterNeeds()

    def __init__(self, width: int) -> None:
        self.width = width

    def start(self, request: Request) -> None:
        pass

    def propose(  # a drafter takes all four; this one needs neither hidden states nor what was just accepted
        self,
        batch: Batch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
    ) -> list[Draft | None]:
        return [self.guess(span.request.tokens, limit) for span, limit in zip(batch.spans, limits, strict=True)]

    def guess(self, tokens: Sequence[int], limit: int) -> Draft | None:
        if limit == 0 or len(tokens) < 2 or tokens[-1] != tokens[-2]:
            return None
        return Draft(tokens=(tokens[-1],) * min(self.width, limit))

    def stop(self, request: Request) -> None:
        pass


@hookimpl
def plugin_options() -> type[RepeatOptions]:
    return RepeatOptions


@hookimpl
def make_drafter(options: RepeatOptions) -> RepeatDrafter:
    return RepeatDrafter(options.width)
