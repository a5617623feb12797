"""The body of a completion, and the chunks of a streamed one. Their schemas in /openapi.json come from here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from specserve.protocols import AnswerCheck
from specserve.types import FinishReason
from specserve_server.completions.logprobs import CompletionLogprobs
from specserve_server.generation.answer_fields import AnswerFields
from specserve_server.generation.logprobs import PromptLogprobs
from specserve_server.generation.speculation_metrics import Metrics
from specserve_server.generation.speculation_steps import SpeculationSteps
from specserve_server.generation.usage import Usage


class CompletionChoice(msgspec.Struct, kw_only=True):
    """The four lists from `token_ids` on, and `prompt_token_ids`: with return_token_ids. `speculation`: with
    return_speculation."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: str | int | None
    validation: AnswerCheck | UnsetType = UNSET
    token_ids: Sequence[int] | UnsetType = UNSET
    accepted: Sequence[bool] | UnsetType = UNSET
    drafted_by: Sequence[str | None] | UnsetType = UNSET
    text_offset: list[int] | UnsetType = UNSET
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    speculation: SpeculationSteps | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(AnswerFields):
    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage
    metrics: Metrics | UnsetType = UNSET


class CompletionChunk(AnswerFields):
    """The chunk with the usage has no choices."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage | UnsetType = UNSET
    metrics: Metrics | UnsetType = UNSET
