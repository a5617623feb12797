"""Token counts of an answer, summed over its choices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.generation.choices import Choice


class PromptTokensDetails(msgspec.Struct):
    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    reasoning_tokens: int


class Usage(msgspec.Struct):
    """`completion_tokens_details`: of models that reason before they answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET


def usage(choices: Sequence[Choice], n: int) -> Usage:
    """A prompt counts once, however many choices it has."""
    firsts = choices[::n]
    prompt_tokens = sum(len(choice.request.prompt_token_ids) for choice in firsts)
    completion_tokens = sum(choice.num_tokens for choice in choices)
    cached = PromptTokensDetails(sum(choice.cached_tokens for choice in firsts))
    counts = Usage(prompt_tokens, completion_tokens, prompt_tokens + completion_tokens, cached)
    if any(choice.reasoning is not None for choice in choices):
        counts.completion_tokens_details = CompletionTokensDetails(sum(choice.reasoning_tokens for choice in choices))
    return counts
