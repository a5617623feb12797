"""Log-probabilities in OpenAI's format for chat and in vLLM's for prompts.

No value is null or infinite: some clients compare the floats.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from specserve_server.generation.text_beginning import TextBeginning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.types import TokenLogprobs
    from specserve_server.engine_client import ServerTokenizer

MIN_LOGPROB = -9999.0


class TokenLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class ContentLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(msgspec.Struct):
    content: list[ContentLogprob]
    refusal: None


class RankedLogprob(msgspec.Struct):
    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, RankedLogprob] | None]
"""By position, then by token id; null for the first token."""


def clamp_logprob(logprob: float) -> float:
    return logprob if math.isfinite(logprob) and logprob > MIN_LOGPROB else MIN_LOGPROB


def top_logprobs(entry: TokenLogprobs, num_logprobs: int) -> zip[tuple[int, float]]:
    """The likeliest (token id, log-probability); an entry has extra ones where echo and prompt_logprobs differ."""
    return zip(entry.top_ids[:num_logprobs], entry.top_logprobs[:num_logprobs], strict=True)


def chat_logprobs(
    tokenizer: ServerTokenizer, entries: Sequence[TokenLogprobs], num_first: int, skip_special_tokens: bool
) -> ChatLogprobs:
    """The bytes of all tokens are together the text. `num_first`: as a `CompletionOutput`'s."""

    def fields(token_id: int, logprob: float, first: bool) -> tuple[str, float, list[int]]:
        data = tokenizer.token_bytes(token_id, first=first, skip_special_tokens=skip_special_tokens)
        return tokenizer.token_text(token_id, first=first), clamp_logprob(logprob), list(data)

    content = []
    for i, entry in enumerate(entries):
        first, likeliest = i < num_first, zip(entry.top_ids, entry.top_logprobs, strict=True)
        top = [TokenLogprob(*fields(id, value, first)) for id, value in likeliest]
        content.append(ContentLogprob(*fields(entry.token_id, entry.logprob, first), top))
    return ChatLogprobs(content, None)


def prompt_logprobs(
    tokenizer: ServerTokenizer,
    prompt_ids: Sequence[int],
    entries: Sequence[TokenLogprobs],
    num_logprobs: int,
    skip_special_tokens: bool,
) -> PromptLogprobs:
    num_first = TextBeginning(tokenizer, skip_special_tokens).count(prompt_ids)

    def ranked_logprob(token_id: int, logprob: float, rank: int | None) -> RankedLogprob:
        name = tokenizer.token_text(token_id, first=len(positions) < num_first)
        return RankedLogprob(clamp_logprob(logprob), rank, name)

    positions: PromptLogprobs = [None] * (len(prompt_ids) - len(entries))
    for entry in entries:
        ranked = enumerate(top_logprobs(entry, num_logprobs), 1)
        position = {str(id): ranked_logprob(id, value, rank) for rank, (id, value) in ranked}
        position.setdefault(str(entry.token_id), ranked_logprob(entry.token_id, entry.logprob, None))
        positions.append(position)
    return positions
