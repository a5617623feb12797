"""The choices of one response: the engine request of each and what it generated so far.

Owns the step from the engine's tokens to text. Knows neither completions nor chat.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET

from specserve.text.detokenizer import IncrementalDetokenizer
from specserve_server.errors import GenerationError
from specserve_server.generation.reasoning import thought_stream
from specserve_server.generation.text_beginning import TextBeginning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import UnsetType

    from specserve.protocols import AnswerCheck
    from specserve.types import (
        FinishReason,
        GenerateRequest,
        Reasoning,
        RequestOutput,
        SpeculationStats,
        SpeculationStep,
        TokenLogprobs,
    )
    from specserve_server.engine_client import ServerTokenizer
    from specserve_server.generation.thought_stream import ThoughtStream


class CompletionOutput(NamedTuple):
    """What one engine output adds to a choice; offsets are characters of the generated text."""

    text: str
    token_ids: tuple[int, ...]
    accepted: tuple[bool, ...]
    drafted_by: tuple[str | None, ...]
    """None for a token of the target alone."""
    text_offsets: list[int]
    logprobs: tuple[TokenLogprobs, ...]
    finish_reason: FinishReason | None
    stop_reason: str | int | None
    """The stop string, or the token of stop_token_ids, that ended the text."""
    reasoning: str = ""
    """Text that precedes the answer, of a model that reasons; not in `text`."""
    num_first: int = 0
    """How many of these tokens come before the second one that a text shows, of a prompt that shows none."""
    steps: tuple[SpeculationStep, ...] = ()
    """Those that gave the tokens, with return_speculation."""


@dataclass(slots=True)
class Choice:
    index: int
    request: GenerateRequest
    detokenizer: IncrementalDetokenizer
    beginning: TextBeginning
    echo_text: str = ""
    """Precedes the generated text: the prompt, where echo asks for it."""
    discard_output: bool = False
    """max_tokens 0: only the prompt is scored, though the engine generates one token."""
    reasoning: ThoughtStream | None = None
    """Of a model that reasons before it answers."""
    reasoning_tokens: int = 0
    outputs: list[CompletionOutput] = field(default_factory=list)
    num_tokens: int = 0
    cached_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    stats: SpeculationStats | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    texts: list[str] = field(default_factory=list)
    """The answer's, where a form was asked for."""
    check: AnswerCheck | UnsetType = UNSET
    """Of the ended answer; unset where all that was asked for was enforced."""

    def update(self, output: RequestOutput) -> CompletionOutput | None:
        """None while there is nothing to show: the prompt is being computed."""
        if output.finish_reason == "error":
            raise GenerationError(output.error or "the engine could not finish this request.")
        self.cached_tokens = max(self.cached_tokens, output.cached_tokens)
        self.prompt_logprobs += output.prompt_logprobs or ()
        self.stats = output.stats or self.stats
        self.finish_reason = output.finish_reason
        self.stop_reason = self.reason_of(output)
        if not output.tokens and output.finish_reason is None:
            return None
        text, offsets = self.detokenizer.push(
            output.tokens, finish_reason=output.finish_reason, stop_string=output.stop_string
        )
        if self.discard_output:
            return CompletionOutput("", (), (), (), [], (), output.finish_reason, self.stop_reason)
        self.num_tokens += len(output.tokens)
        logprobs = output.logprobs or ()
        drafted_by = tuple(name or None for name in output.drafted_by)
        num_first = self.beginning.count(output.tokens)
        reasoning = ""
        if self.reasoning is not None:
            was_open = self.reasoning.end is None
            reasoning, text = self.reasoning.push(text, final=output.finish_reason is not None)
            if was_open:
                self.reasoning_tokens = count_before(self.reasoning.end, offsets, self.reasoning_tokens)
        if self.request.params.structured_output is not None:
            self.texts.append(text)
        return CompletionOutput(
            text,
            output.tokens,
            output.accepted,
            drafted_by,
            offsets,
            logprobs,
            output.finish_reason,
            self.stop_reason,
            reasoning,
            num_first,
            output.steps,
        )

    def reason_of(self, output: RequestOutput) -> str | int | None:
        if output.finish_reason != "stop" or output.stop_string is not None:
            return output.stop_string
        last = output.tokens[-1] if output.tokens else None
        return last if last in self.request.params.stop_token_ids else None

    def full_output(self) -> CompletionOutput:
        """All outputs as one."""
        return CompletionOutput(
            "".join(output.text for output in self.outputs),
            tuple(token_id for output in self.outputs for token_id in output.token_ids),
            tuple(flag for output in self.outputs for flag in output.accepted),
            tuple(name for output in self.outputs for name in output.drafted_by),
            [offset for output in self.outputs for offset in output.text_offsets],
            tuple(entry for output in self.outputs for entry in output.logprobs),
            self.finish_reason,
            self.stop_reason,
            "".join(output.reasoning for output in self.outputs),
            sum(output.num_first for output in self.outputs),
            tuple(step for output in self.outputs for step in output.steps),
        )


def count_before(end: int | None, offsets: Sequence[int], num_earlier: int) -> int:
    """Tokens of the reasoning. `num_earlier`: those of earlier steps, of which a model may be known only now to have
    answered at once."""
    if end == 0:
        return 0
    return num_earlier + sum(end is None or offset < end for offset in offsets)


def make_choice(
    index: int,
    request: GenerateRequest,
    tokenizer: ServerTokenizer,
    *,
    echo_text: str | None = None,
    discard_output: bool = False,
    reasoning: Reasoning | None = None,
) -> Choice:
    """`echo_text` is None without an echo."""
    params, prompt, skip = request.params, request.prompt_token_ids, request.params.skip_special_tokens
    stream_after = tokenizer.stream if echo_text is None else tokenizer.echo_stream
    stream = stream_after(prompt, skip_special_tokens=skip)
    detokenizer = IncrementalDetokenizer(stream, params.stop, include=params.include_stop_str_in_output)
    beginning = TextBeginning(tokenizer, skip)
    beginning.count(prompt)
    thoughts = None if reasoning is None else thought_stream(reasoning)
    return Choice(index, request, detokenizer, beginning, echo_text or "", discard_output, thoughts)
