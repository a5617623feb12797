"""Log-probabilities in OpenAI's format for chat and in vLLM's for prompts.

No value is null or infinite: some clients compare the floats.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from specserve_server.generation.text_beginning import TextBeginning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.types import TokenLogprobs
    from specserve_checks.json_types import JsonObject
    from specserve_server.engine_client import ServerTokenizer

MIN_LOGPROB = -9999.0


def clamp_logprob(logprob: float) -> float:
    return logprob if math.isfinite(logprob) and logprob > MIN_LOGPROB else MIN_LOGPROB


def top_logprobs(entry: TokenLogprobs, num_logprobs: int) -> zip[tuple[int, float]]:
    """The likeliest (token id, log-probability); an entry has extra ones where echo and prompt_logprobs differ."""
    return zip(entry.top_ids[:num_logprobs], entry.top_logprobs[:num_logprobs], strict=True)


def chat_logprobs(
    tokenizer: ServerTokenizer, entries: Sequence[TokenLogprobs], num_first: int, skip_special_tokens: bool
) -> JsonObject:
    """The bytes of all tokens are together the text. `num_first`: as a `CompletionOutput`'s."""

    def token_logprob(token_id: int, logprob: float, first: bool) -> JsonObject:
        data = tokenizer.token_bytes(token_id, first=first, skip_special_tokens=skip_special_tokens)
        name = tokenizer.token_text(token_id, first=first)
        return {"token": name, "logprob": clamp_logprob(logprob), "bytes": list(data)}

    content = [
        {
            **token_logprob(entry.token_id, entry.logprob, i < num_first),
            "top_logprobs": [
                token_logprob(*top, i < num_first) for top in zip(entry.top_ids, entry.top_logprobs, strict=True)
            ],
        }
        for i, entry in enumerate(entries)
    ]
    return {"content": content, "refusal": None}


def prompt_logprobs(
    tokenizer: ServerTokenizer,
    prompt_ids: Sequence[int],
    entries: Sequence[TokenLogprobs],
    num_logprobs: int,
    skip_special_tokens: bool,
) -> list[JsonObject | None]:
    """Per position {id: {logprob, rank, decoded_token}}, null for the first token."""
    num_first = TextBeginning(tokenizer, skip_special_tokens).count(prompt_ids)

    def ranked_logprob(token_id: int, logprob: float, rank: int | None) -> JsonObject:
        name = tokenizer.token_text(token_id, first=len(positions) < num_first)
        return {"logprob": clamp_logprob(logprob), "rank": rank, "decoded_token": name}

    positions: list[JsonObject | None] = [None] * (len(prompt_ids) - len(entries))
    for entry in entries:
        ranked = enumerate(top_logprobs(entry, num_logprobs), 1)
        position: JsonObject = {str(id): ranked_logprob(id, value, rank) for rank, (id, value) in ranked}
        position.setdefault(str(entry.token_id), ranked_logprob(entry.token_id, entry.logprob, None))
        positions.append(position)
    return positions
