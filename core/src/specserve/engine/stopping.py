"""Where a request ends: end-of-text and stop ids, stop strings, max_tokens; checked token by token.

The result is the same whether tokens come one at a time or nine at once, so text, usage, caches and indexes end at
the same token with and without speculation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.admitted import assign

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from specserve.batch.request import Request
    from specserve.types import FinishReason


class StopPoint(NamedTuple):
    """How many of the new tokens count, and why the request ends there, if it does."""

    num_kept: int
    reason: FinishReason | None


def find_stop(request: Request, tokens: Sequence[int], eos_token_ids: Set[int]) -> StopPoint:
    """Read the new tokens in order up to the one that ends the request. Advances the request's stop-string matcher:
    call it once per committed token."""
    params, matcher = request.params, request.stop_matcher
    remaining = request.max_len - len(request.tokens)
    for i, token in enumerate(tokens):
        if (token in eos_token_ids and not params.ignore_eos) or token in params.stop_token_ids:
            return StopPoint(i + 1, "stop")
        if matcher is not None:
            found = matcher.push(token)
            if found is not None and request.num_generated + i + 1 >= params.min_tokens:
                assign(request, "stop_string", found)
                return StopPoint(i + 1, "stop")
        if i + 1 >= remaining:
            return StopPoint(i + 1, "length")
    return StopPoint(len(tokens), None)
