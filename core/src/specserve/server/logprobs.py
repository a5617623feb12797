"""Log-probabilities in OpenAI's format for chat and in vLLM's for prompts.

No value is null or infinite: some clients compare the floats.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.json_types import JsonObject
    from specserve.server.engine_client import ServerTokenizer
    from specserve.types import TokenLogprobs

MIN_LOGPROB = -9999.0


def clamp_logprob(logprob: float) -> float:
    return logprob if math.isfinite(logprob) and logprob > MIN_LOGPROB else MIN_LOGPROB


def top_logprobs(entry: TokenLogprobs, num_logprobs: int) -> zip[tuple[int, float]]:
    """The likeliest (token id, log-probability); an entry has extra ones where echo and prompt_logprobs differ."""
    return zip(entry.top_ids[:num_logprobs], entry.top_logprobs[:num_logprobs], strict=True)


def chat_logprobs(tokenizer: ServerTokenizer, entries: Sequence[TokenLogprobs]) -> JsonObject:
    content = [
        {
            **token_logprob(tokenizer, entry.token_id, entry.logprob),
            "top_logprobs": [
                token_logprob(tokenizer, *top) for top in zip(entry.top_ids, entry.top_logprobs, strict=True)
            ],
        }
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def token_logprob(tokenizer: ServerTokenizer, token_id: int, logprob: float) -> JsonObject:
    return {
        "token": tokenizer.token_text(token_id),
        "logprob": clamp_logprob(logprob),
        "bytes": list(tokenizer.token_bytes(token_id)),
    }


def prompt_logprobs(
    tokenizer: ServerTokenizer, prompt_ids: Sequence[int], entries: Sequence[TokenLogprobs], num_logprobs: int
) -> list[JsonObject | None]:
    """Per position {id: {logprob, rank, decoded_token}}, null for the first token."""
    positions: list[JsonObject | None] = [None] * (len(prompt_ids) - len(entries))
    for entry in entries:
        ranked = enumerate(top_logprobs(entry, num_logprobs), 1)
        position: JsonObject = {str(id): ranked_logprob(tokenizer, id, value, rank) for rank, (id, value) in ranked}
        position.setdefault(str(entry.token_id), ranked_logprob(tokenizer, entry.token_id, entry.logprob, None))
        positions.append(position)
    return positions


def ranked_logprob(tokenizer: ServerTokenizer, token_id: int, logprob: float, rank: int | None) -> JsonObject:
    return {"logprob": clamp_logprob(logprob), "rank": rank, "decoded_token": tokenizer.token_text(token_id)}
