"""The choices of a completion, in OpenAI's format; the first chunk of an echo begins with the prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specserve_server.completions.logprobs import completion_logprobs, concat_logprobs, echo_logprobs
from specserve_server.generation.answer_checks import check_fields
from specserve_server.generation.echo import echoed_tokens
from specserve_server.generation.logprobs import prompt_logprobs

if TYPE_CHECKING:
    from specserve_checks.json_types import JsonObject
    from specserve_server.bodies.requests import CompletionBody
    from specserve_server.completions.logprobs import CompletionLogprobs
    from specserve_server.engine_client import ServerTokenizer
    from specserve_server.generation.choices import Choice, CompletionOutput


@dataclass(frozen=True, slots=True)
class CompletionFormatter:
    tokenizer: ServerTokenizer
    body: CompletionBody
    object_type: str = "text_completion"
    chunk_object_type: str = "text_completion"

    def full_choice(self, choice: Choice, output: CompletionOutput) -> JsonObject:
        return self.chunk_choice(choice, output, first=True)

    def chunk_choice(self, choice: Choice, output: CompletionOutput, *, first: bool) -> JsonObject:
        fields: JsonObject = {
            "index": choice.index,
            "text": (choice.echo_text if first else "") + output.text,
            "logprobs": self.logprobs(choice, output, first),
            "finish_reason": output.finish_reason,
            "stop_reason": output.stop_reason,
            **check_fields(choice),
        }
        prompt_ids = choice.request.prompt_token_ids
        if self.body.return_token_ids:
            fields["token_ids"] = output.token_ids
            fields["accepted"] = output.accepted
            fields["drafted_by"] = output.drafted_by
            fields["text_offset"] = text_offsets(choice, output)
            if first:
                fields["prompt_token_ids"] = prompt_ids
        if first and self.body.prompt_logprobs is not None:
            entries, num_logprobs = choice.prompt_logprobs, self.body.prompt_logprobs
            skip = choice.request.params.skip_special_tokens
            fields["prompt_logprobs"] = prompt_logprobs(self.tokenizer, prompt_ids, entries, num_logprobs, skip)
        return fields

    def logprobs(self, choice: Choice, output: CompletionOutput, first: bool) -> CompletionLogprobs | None:
        num_logprobs = self.body.logprobs
        if num_logprobs is None:
            return None
        offsets = text_offsets(choice, output)
        own = completion_logprobs(self.tokenizer, output.logprobs, offsets, num_logprobs, output.num_first)
        if not (first and self.body.echo):
            return own
        prompt_ids, entries = choice.request.prompt_token_ids, choice.prompt_logprobs
        echoed = echoed_tokens(self.tokenizer, choice.echo_text, prompt_ids)
        return concat_logprobs(echo_logprobs(self.tokenizer, prompt_ids, entries, num_logprobs, echoed), own)

    def extra_fields(self, _choice: Choice, /) -> JsonObject:
        return {}


def text_offsets(choice: Choice, output: CompletionOutput) -> list[int]:
    """Where each token begins in the choice's text, with the echoed prompt."""
    begin = len(choice.echo_text)
    return [begin + offset for offset in output.text_offsets]
