"""Where a request ends: end-of-text and stop ids, stop strings, max_tokens; checked token by token.

The same cut whether tokens come one at a time or nine at once, so text, usage, caches and indexes end at
the completing token with and without speculation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from specserve.batch.request import Request
    from specserve.types import FinishReason


class Cut(NamedTuple):
    """How many of the new tokens count, and why the request ends there, if it does."""

    kept: int
    reason: FinishReason | None


def cut(request: Request, tokens: Sequence[int], eos_token_ids: Set[int]) -> Cut:
    """Read the new tokens in order up to the one that ends the request. Feeds the stop-string watcher, so
    call it once per committed token."""
    params, watcher = request.params, request.stop_text
    room = request.max_len - len(request.tokens)
    for i, token in enumerate(tokens):
        if (token in eos_token_ids and not params.ignore_eos) or token in params.stop_token_ids:
            return Cut(i + 1, "stop")
        if watcher is not None:
            found = watcher.push(token)
            if found is not None and request.num_generated + i + 1 >= params.min_tokens:
                request.stop_string = found
                return Cut(i + 1, "stop")
        if i + 1 >= room:
            return Cut(i + 1, "length")
    return Cut(len(tokens), None)
