"""From the choices of a completion to its body or chunks; the first chunk of an echo begins with the prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specserve_server.completions.answer import Completion, CompletionChoice, CompletionChunk
from specserve_server.completions.logprobs import completion_logprobs, concat_logprobs, echo_logprobs
from specserve_server.generation.echo import echoed_tokens
from specserve_server.generation.logprobs import prompt_logprobs
from specserve_server.generation.speculation_metrics import speculation_metrics
from specserve_server.generation.speculation_steps import speculation_steps
from specserve_server.generation.usage import usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.bodies.requests import CompletionBody
    from specserve_server.completions.logprobs import CompletionLogprobs
    from specserve_server.engine_client import ServerTokenizer
    from specserve_server.generation.answer_fields import AnswerHead
    from specserve_server.generation.choices import Choice, CompletionOutput


@dataclass(frozen=True, slots=True)
class CompletionFormatter:
    tokenizer: ServerTokenizer
    body: CompletionBody
    object_type = "text_completion"
    chunk_object_type = "text_completion"

    def answer(self, head: AnswerHead, choices: Sequence[Choice]) -> Completion:
        shown = [self.shown_choice(choice, choice.full_output(), first=True) for choice in choices]
        return Completion(*head, shown, usage(choices, self.body.num_choices), speculation_metrics(choices))

    def chunk(self, head: AnswerHead, choice: Choice, output: CompletionOutput, *, first: bool) -> CompletionChunk:
        shown = self.shown_choice(choice, output, first=first)
        return CompletionChunk(*head, [shown])

    def last_chunk(self, head: AnswerHead) -> CompletionChunk:
        return CompletionChunk(*head, [])

    def shown_choice(self, choice: Choice, output: CompletionOutput, *, first: bool) -> CompletionChoice:
        shown = CompletionChoice(
            index=choice.index,
            text=(choice.echo_text if first else "") + output.text,
            logprobs=self.logprobs(choice, output, first),
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason,
            validation=choice.check,
        )
        prompt_ids = choice.request.prompt_token_ids
        if self.body.return_token_ids:
            shown.token_ids = output.token_ids
            shown.accepted = output.accepted
            shown.drafted_by = output.drafted_by
            shown.text_offset = text_offsets(choice, output)
            if first:
                shown.prompt_token_ids = prompt_ids
        if self.body.return_speculation:
            shown.speculation = speculation_steps(self.tokenizer, output)
        if first and self.body.prompt_logprobs is not None:
            entries, num_logprobs = choice.prompt_logprobs, self.body.prompt_logprobs
            skip = choice.request.params.skip_special_tokens
            shown.prompt_logprobs = prompt_logprobs(self.tokenizer, prompt_ids, entries, num_logprobs, skip)
        return shown

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


def text_offsets(choice: Choice, output: CompletionOutput) -> list[int]:
    """Where each token begins in the choice's text, with the echoed prompt."""
    begin = len(choice.echo_text)
    return [begin + offset for offset in output.text_offsets]
