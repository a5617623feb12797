"""From the choices of a chat completion to its body or chunks.

No role-only chunk precedes the first token: clients would measure its time as the time to the first token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from msgspec import UNSET

from specserve_server.chat.answer import (
    AnswerMessage,
    ChatChoice,
    ChatChoiceFields,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    Delta,
)
from specserve_server.generation.logprobs import chat_logprobs, prompt_logprobs
from specserve_server.generation.speculation_metrics import speculation_metrics
from specserve_server.generation.speculation_steps import speculation_steps
from specserve_server.generation.usage import usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.bodies.requests import ChatBody
    from specserve_server.engine_client import ServerTokenizer
    from specserve_server.generation.answer_fields import AnswerHead
    from specserve_server.generation.choices import Choice, CompletionOutput
    from specserve_server.generation.logprobs import ChatLogprobs

C = TypeVar("C", bound=ChatChoiceFields)


@dataclass(frozen=True)
class ChatFormatter:
    """A `ResponseFormatter`. Reasoning comes by vLLM's name and by DeepSeek's, of which clients read one."""

    tokenizer: ServerTokenizer
    body: ChatBody
    object_type = "chat.completion"
    chunk_object_type = "chat.completion.chunk"

    def answer(self, head: AnswerHead, choices: Sequence[Choice]) -> ChatCompletion:
        shown = [self.full_choice(choice, choice.full_output()) for choice in choices]
        counts, metrics = usage(choices, self.body.num_choices), speculation_metrics(choices)
        answer = ChatCompletion(*head, shown, counts, metrics=metrics)
        self.add_prompt(answer, choices[0])
        return answer

    def chunk(
        self, head: AnswerHead, choice: Choice, output: CompletionOutput, *, first: bool
    ) -> ChatCompletionChunk | None:
        shown = self.chunk_choice(choice, output, first=first)
        if shown is None:
            return None
        chunk = ChatCompletionChunk(*head, [shown])
        if first and choice.index == 0:
            self.add_prompt(chunk, choice)
        return chunk

    def last_chunk(self, head: AnswerHead) -> ChatCompletionChunk:
        return ChatCompletionChunk(*head, [])

    def full_choice(self, choice: Choice, output: CompletionOutput) -> ChatChoice:
        message = AnswerMessage(role="assistant", content=output.text, refusal=None)
        return self.shown_choice(ChatChoice, message, choice, output)

    def chunk_choice(self, choice: Choice, output: CompletionOutput, *, first: bool) -> ChatChunkChoice | None:
        delta = Delta(role="assistant" if first else UNSET)
        if output.text or output.finish_reason or not output.reasoning:
            delta.content = output.text
        return self.shown_choice(ChatChunkChoice, delta, choice, output)

    def shown_choice(
        self, kind: type[C], content: AnswerMessage | Delta, choice: Choice, output: CompletionOutput
    ) -> C:
        if output.reasoning:
            content.reasoning = content.reasoning_content = output.reasoning
        logprobs = self.logprobs(choice, output) if self.body.logprobs else None
        shown = kind(choice.index, content, logprobs, output.finish_reason, output.stop_reason, choice.check)
        if self.body.return_token_ids:
            shown.token_ids = output.token_ids
            shown.accepted = output.accepted
            shown.drafted_by = output.drafted_by
            shown.text_offset = output.text_offsets
        if self.body.return_speculation:
            shown.speculation = speculation_steps(self.tokenizer, output)
        return shown

    def logprobs(self, choice: Choice, output: CompletionOutput) -> ChatLogprobs:
        skip = choice.request.params.skip_special_tokens
        return chat_logprobs(self.tokenizer, output.logprobs, output.num_first, skip)

    def add_prompt(self, answer: ChatCompletion | ChatCompletionChunk, choice: Choice) -> None:
        prompt_ids = choice.request.prompt_token_ids
        if self.body.return_token_ids:
            answer.prompt_token_ids = prompt_ids
        if self.body.prompt_logprobs is not None:
            entries, num_logprobs = choice.prompt_logprobs, self.body.prompt_logprobs
            skip = choice.request.params.skip_special_tokens
            answer.prompt_logprobs = prompt_logprobs(self.tokenizer, prompt_ids, entries, num_logprobs, skip)
