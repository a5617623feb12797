"""The log-probabilities of completions: OpenAI's legacy format, parallel lists with an entry per token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve_server.generation.logprobs import clamp_logprob, top_logprobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.types import TokenLogprobs
    from specserve_server.engine_client import ServerTokenizer
    from specserve_server.generation.echo import EchoedTokens


class CompletionLogprobs(msgspec.Struct, frozen=True):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


def completion_logprobs(
    tokenizer: ServerTokenizer,
    entries: Sequence[TokenLogprobs],
    offsets: Sequence[int],
    num_logprobs: int,
    num_first: int,
) -> CompletionLogprobs:
    """All tokens put together are the text. `num_first`: as a `CompletionOutput`'s."""
    return CompletionLogprobs(
        [tokenizer.token_text(entry.token_id, first=i < num_first) for i, entry in enumerate(entries)],
        [clamp_logprob(entry.logprob) for entry in entries],
        [logprobs_by_text(tokenizer, entry, num_logprobs, i < num_first) for i, entry in enumerate(entries)],
        list(offsets),
    )


def logprobs_by_text(
    tokenizer: ServerTokenizer, entry: TokenLogprobs, num_logprobs: int, first: bool
) -> dict[str, float]:
    """No token takes the name of the one that was chosen, and of others with one text the likeliest has it; those that
    are left are named by their ids."""
    chosen = tokenizer.token_text(entry.token_id, first=first)
    found: dict[str, float] = {}
    for token_id, logprob in top_logprobs(entry, num_logprobs):
        text = tokenizer.token_text(token_id, first=first)
        is_taken = text in found or (text == chosen and token_id != entry.token_id)
        found[f"token_id:{token_id}" if is_taken else text] = clamp_logprob(logprob)
    found.setdefault(chosen, clamp_logprob(entry.logprob))
    return found


def echo_logprobs(
    tokenizer: ServerTokenizer,
    prompt_ids: Sequence[int],
    entries: Sequence[TokenLogprobs],
    num_logprobs: int,
    echoed: EchoedTokens,
) -> CompletionLogprobs:
    """Of an echoed prompt. The tokens before the first entry (the first token) have none: null."""
    num_unscored = len(prompt_ids) - len(entries)
    unscored = CompletionLogprobs(
        [tokenizer.token_text(id, first=i < echoed.num_first) for i, id in enumerate(prompt_ids[:num_unscored])],
        [None] * num_unscored,
        [None] * num_unscored,
        echoed.offsets[:num_unscored],
    )
    offsets, num_first = echoed.offsets[num_unscored:], echoed.num_first - num_unscored
    return concat_logprobs(unscored, completion_logprobs(tokenizer, entries, offsets, num_logprobs, num_first))


def concat_logprobs(first: CompletionLogprobs, second: CompletionLogprobs) -> CompletionLogprobs:
    return CompletionLogprobs(
        first.tokens + second.tokens,
        first.token_logprobs + second.token_logprobs,
        first.top_logprobs + second.top_logprobs,
        first.text_offset + second.text_offset,
    )
