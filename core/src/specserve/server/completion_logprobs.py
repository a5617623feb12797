"""The log-probabilities of completions: OpenAI's legacy format, parallel lists with an entry per token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.server.logprobs import clamp_logprob, top_logprobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.server.engine_client import ServerTokenizer
    from specserve.types import TokenLogprobs


class CompletionLogprobs(msgspec.Struct, frozen=True):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


def completion_logprobs(
    tokenizer: ServerTokenizer, entries: Sequence[TokenLogprobs], offsets: Sequence[int], num_logprobs: int
) -> CompletionLogprobs:
    return CompletionLogprobs(
        [tokenizer.token_text(entry.token_id) for entry in entries],
        [clamp_logprob(entry.logprob) for entry in entries],
        [logprobs_by_text(tokenizer, entry, num_logprobs) for entry in entries],
        list(offsets),
    )


def logprobs_by_text(tokenizer: ServerTokenizer, entry: TokenLogprobs, num_logprobs: int) -> dict[str, float]:
    """Tokens of one text share a key: the likeliest keeps it."""
    found: dict[str, float] = {}
    for token_id, logprob in top_logprobs(entry, num_logprobs):
        found.setdefault(tokenizer.token_text(token_id), clamp_logprob(logprob))
    found.setdefault(tokenizer.token_text(entry.token_id), clamp_logprob(entry.logprob))
    return found


def echo_logprobs(
    tokenizer: ServerTokenizer, prompt_ids: Sequence[int], entries: Sequence[TokenLogprobs], num_logprobs: int
) -> CompletionLogprobs:
    """Of an echoed prompt. The tokens before the first entry (the first token) have none: null."""
    stream = tokenizer.stream((), skip_special_tokens=True)
    offsets, position = [], 0
    for token_id in prompt_ids:
        offsets.append(position)
        position += len(stream.push(token_id))
    num_unscored = len(prompt_ids) - len(entries)
    unscored = CompletionLogprobs(
        [tokenizer.token_text(token_id) for token_id in prompt_ids[:num_unscored]],
        [None] * num_unscored,
        [None] * num_unscored,
        offsets[:num_unscored],
    )
    return concat_logprobs(unscored, completion_logprobs(tokenizer, entries, offsets[num_unscored:], num_logprobs))


def concat_logprobs(first: CompletionLogprobs, second: CompletionLogprobs) -> CompletionLogprobs:
    return CompletionLogprobs(
        first.tokens + second.tokens,
        first.token_logprobs + second.token_logprobs,
        first.top_logprobs + second.top_logprobs,
        first.text_offset + second.text_offset,
    )
