"""A drafter that drafts the last token again: right in runs of blanks or dashes, cheap elsewhere.

Knows nothing about the model: verification decides which draft tokens are accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from specserve.api import Draft, Drafter, hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import ForwardOutput, Verdict
    from specserve.api.batch import ScheduledBatch


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """`--set repeat.width=4`"""

    width: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    """Draft tokens per step."""


class LastTokenDrafter(Drafter):
    """Proposes a chain of up to `width` copies of the last token, once that token has occurred twice in a row."""

    name = "repeat"

    def __init__(self, width: int) -> None:
        self.width = width

    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        """After a step: a draft for each of batch.spans, of at most limits[i] tokens, or None."""
        return [self.draft(span.request.tokens, limit) for span, limit in zip(batch.spans, limits, strict=True)]

    def draft(self, tokens: Sequence[int], limit: int) -> Draft | None:
        if limit == 0 or len(tokens) < 2 or tokens[-1] != tokens[-2]:
            return None
        return Draft(tokens=(tokens[-1],) * min(self.width, limit))


@hookimpl
def plugin_options() -> type[Options]:
    return Options


@hookimpl
def make_drafter(options: Options) -> LastTokenDrafter:
    return LastTokenDrafter(options.width)
