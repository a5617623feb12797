"""Log-probabilities in the shapes of OpenAI's completions and chat, and of vLLM's prompt_logprobs.

Owns names of tokens and that no value is null or infinite: some clients compare the floats. Knows nothing of
requests.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.server.engine_client import ServerTokenizer
    from specserve.types import TokenLogprobs

FLOOR = -9999.0


def finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) and logprob > FLOOR else FLOOR


def best(entry: TokenLogprobs, most: int) -> zip[tuple[int, float]]:
    """The `most` likeliest: an entry may hold more where echo and prompt_logprobs ask for different counts."""
    return zip(entry.top_ids[:most], entry.top_logprobs[:most], strict=True)


def legacy_logprobs(
    tokenizer: ServerTokenizer, entries: Sequence[TokenLogprobs], offsets: Sequence[int], most: int
) -> dict[str, list[Any]]:
    """Completions. Two tokens of one text share a key of top_logprobs: the likelier keeps it."""
    tops: list[dict[str, float] | None] = []
    for entry in entries:
        top: dict[str, float] = {}
        for token_id, logprob in best(entry, most):
            top.setdefault(tokenizer.token_text(token_id), finite(logprob))
        top.setdefault(tokenizer.token_text(entry.token_id), finite(entry.logprob))
        tops.append(top)
    return {
        "tokens": [tokenizer.token_text(entry.token_id) for entry in entries],
        "token_logprobs": [finite(entry.logprob) for entry in entries],
        "top_logprobs": tops,
        "text_offset": list(offsets),
    }


def echoed_logprobs(
    tokenizer: ServerTokenizer, prompt_ids: Sequence[int], entries: Sequence[TokenLogprobs], most: int
) -> dict[str, list[Any]]:
    """The prompt's part of an echo. What precedes the first entry (the first token) has no probability: null."""
    stream = tokenizer.stream((), skip_special_tokens=True)
    offsets, place = [], 0
    for token_id in prompt_ids:
        offsets.append(place)
        place += len(stream.push(token_id))
    unscored = len(prompt_ids) - len(entries)
    scored = legacy_logprobs(tokenizer, entries, offsets[unscored:], most)
    return {
        "tokens": [tokenizer.token_text(token_id) for token_id in prompt_ids[:unscored]] + scored["tokens"],
        "token_logprobs": [None] * unscored + scored["token_logprobs"],
        "top_logprobs": [None] * unscored + scored["top_logprobs"],
        "text_offset": offsets[:unscored] + scored["text_offset"],
    }


def join_logprobs(first: dict[str, list[Any]], second: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {key: first[key] + second[key] for key in first}


def chat_logprobs(tokenizer: ServerTokenizer, entries: Sequence[TokenLogprobs]) -> dict[str, Any]:
    def named(token_id: int, logprob: float) -> dict[str, Any]:
        return {
            "token": tokenizer.token_text(token_id),
            "logprob": finite(logprob),
            "bytes": list(tokenizer.token_bytes(token_id)),
        }

    content = [
        {
            **named(entry.token_id, entry.logprob),
            "top_logprobs": [named(*top) for top in zip(entry.top_ids, entry.top_logprobs, strict=True)],
        }
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def prompt_logprobs(
    tokenizer: ServerTokenizer, prompt_ids: Sequence[int], entries: Sequence[TokenLogprobs], most: int
) -> list[dict[str, Any] | None]:
    """vLLM's shape: per position {id: {logprob, rank, decoded_token}}, null for the first token."""
    result: list[dict[str, Any] | None] = [None] * (len(prompt_ids) - len(entries))
    for entry in entries:
        ranked = enumerate(best(entry, most), 1)
        position = {str(id): ranked_token(tokenizer, id, logprob, rank) for rank, (id, logprob) in ranked}
        position.setdefault(str(entry.token_id), ranked_token(tokenizer, entry.token_id, entry.logprob, None))
        result.append(position)
    return result


def ranked_token(tokenizer: ServerTokenizer, token_id: int, logprob: float, rank: int | None) -> dict[str, Any]:
    return {"logprob": finite(logprob), "rank": rank, "decoded_token": tokenizer.token_text(token_id)}
