"""The choices of a chat completion, in OpenAI's format.

No role-only chunk precedes the first token: clients would measure its time as the time to the first token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specserve_server.generation.answer_checks import check_fields
from specserve_server.generation.logprobs import chat_logprobs, prompt_logprobs

if TYPE_CHECKING:
    from specserve_checks.json_types import JsonObject
    from specserve_server.bodies.requests import ChatBody
    from specserve_server.engine_client import ServerTokenizer
    from specserve_server.generation.choices import Choice, CompletionOutput


@dataclass(frozen=True, slots=True)
class ChatFormatter:
    tokenizer: ServerTokenizer
    body: ChatBody
    object_type: str = "chat.completion"
    chunk_object_type: str = "chat.completion.chunk"

    def full_choice(self, choice: Choice, output: CompletionOutput) -> JsonObject:
        message: JsonObject = {"role": "assistant", "content": output.text, "refusal": None, **reasoning_fields(output)}
        return {"index": choice.index, "message": message, **self.other_fields(choice, output)}

    def chunk_choice(self, choice: Choice, output: CompletionOutput, *, first: bool) -> JsonObject:
        delta: JsonObject = {"role": "assistant"} if first else {}
        if output.text or output.finish_reason or not output.reasoning:
            delta["content"] = output.text
        delta |= reasoning_fields(output)
        return {"index": choice.index, "delta": delta, **self.other_fields(choice, output)}

    def other_fields(self, choice: Choice, output: CompletionOutput) -> JsonObject:
        skip = choice.request.params.skip_special_tokens
        logprobs = (
            chat_logprobs(self.tokenizer, output.logprobs, output.num_first, skip) if self.body.logprobs else None
        )
        fields: JsonObject = {
            "logprobs": logprobs,
            "finish_reason": output.finish_reason,
            "stop_reason": output.stop_reason,
            **check_fields(choice),
        }
        if self.body.return_token_ids:
            fields["token_ids"] = output.token_ids
            fields["accepted"] = output.accepted
            fields["drafted_by"] = output.drafted_by
            fields["text_offset"] = output.text_offsets
        return fields

    def extra_fields(self, choice: Choice, /) -> JsonObject:
        prompt_ids = choice.request.prompt_token_ids
        fields: JsonObject = {}
        if self.body.return_token_ids:
            fields["prompt_token_ids"] = prompt_ids
        if self.body.prompt_logprobs is not None:
            entries, num_logprobs = choice.prompt_logprobs, self.body.prompt_logprobs
            skip = choice.request.params.skip_special_tokens
            fields["prompt_logprobs"] = prompt_logprobs(self.tokenizer, prompt_ids, entries, num_logprobs, skip)
        return fields


def reasoning_fields(output: CompletionOutput) -> JsonObject:
    """By vLLM's name and by DeepSeek's, of which clients read one. None where there is none."""
    if not output.reasoning:
        return {}
    return {"reasoning": output.reasoning, "reasoning_content": output.reasoning}
