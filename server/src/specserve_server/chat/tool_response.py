"""Chat choices with tool calls, in OpenAI's format, whole and as deltas."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import UNSET

from specserve_server.chat.answer import (
    AnsweredCall,
    AnsweredFunction,
    CallDelta,
    ChatChunkChoice,
    Delta,
    FunctionDelta,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.chat.answer import ChatChoice, ChatCompletion, ChatCompletionChunk, ChatFinishReason
    from specserve_server.chat.response import ChatFormatter
    from specserve_server.generation.answer_fields import AnswerHead
    from specserve_server.generation.choices import Choice, CompletionOutput
    from specserve_server.tools.pieces import Parsed
    from specserve_server.tools.reading import CallReading, ToolCallStream


@dataclass(frozen=True, slots=True)
class ToolFormatter:
    """A `ResponseFormatter` whose texts are read for calls. `is_named`: the request chose the tool, and as in OpenAI's
    API the text ends then with `stop`."""

    chat: ChatFormatter
    reading: CallReading
    is_named: bool
    object_type: str = "chat.completion"
    chunk_object_type: str = "chat.completion.chunk"
    streams: dict[int, ToolCallStream] = field(default_factory=dict)

    def answer(self, head: AnswerHead, choices: Sequence[Choice]) -> ChatCompletion:
        shown = [self.full_choice(choice, choice.full_output()) for choice in choices]
        return self.chat.answer_of(head, choices, shown)

    def full_choice(self, choice: Choice, output: CompletionOutput) -> ChatChoice:
        parsed = self.reading.stream().push(output.text, final=True)
        calls: list[AnsweredCall] = []
        for piece in parsed.calls:
            if piece.name is not None:
                calls.append(AnsweredCall(new_call_id(), "function", AnsweredFunction(piece.name, "")))
            calls[-1].function.arguments += piece.arguments
        shown = self.chat.full_choice(choice, output)
        # Clients send an answer back, and a message has content or calls.
        shown.content.content = parsed.text if parsed.text or not calls else None
        shown.content.tool_calls = calls or UNSET
        shown.finish_reason = self.finish_reason(output, bool(calls))
        return shown

    def chunk(
        self, head: AnswerHead, choice: Choice, output: CompletionOutput, *, first: bool
    ) -> ChatCompletionChunk | None:
        stream = self.streams.get(choice.index)
        if stream is None:
            stream = self.streams[choice.index] = self.reading.stream()
        parsed = stream.push(output.text, final=output.finish_reason is not None)
        is_shown = parsed.text or parsed.calls or output.reasoning or output.finish_reason or output.logprobs
        if not is_shown and not self.chat.body.return_token_ids:
            return None
        reasoning = output.reasoning or UNSET
        has_content = parsed.text or (output.finish_reason and not stream.has_calls)
        delta = Delta(
            role="assistant" if first else UNSET,
            content=parsed.text if has_content else UNSET,
            reasoning=reasoning,
            reasoning_content=reasoning,
            tool_calls=call_deltas(parsed) or UNSET,
        )
        shown = self.chat.shown_choice(ChatChunkChoice, delta, choice, output)
        shown.finish_reason = self.finish_reason(output, stream.has_calls)
        return self.chat.chunk_of(head, choice, shown, first=first)

    def last_chunk(self, head: AnswerHead) -> ChatCompletionChunk:
        return self.chat.last_chunk(head)

    def finish_reason(self, output: CompletionOutput, has_calls: bool) -> ChatFinishReason | None:
        is_call = has_calls and not self.is_named and output.finish_reason == "stop"
        return "tool_calls" if is_call else output.finish_reason


def call_deltas(parsed: Parsed) -> list[CallDelta]:
    deltas: list[CallDelta] = []
    for piece in parsed.calls:
        if piece.name is not None:
            named = FunctionDelta(name=piece.name, arguments=piece.arguments)
            deltas.append(CallDelta(index=piece.index, id=new_call_id(), type="function", function=named))
        elif deltas and deltas[-1].index == piece.index:
            deltas[-1].function.arguments += piece.arguments
        else:
            deltas.append(CallDelta(index=piece.index, function=FunctionDelta(arguments=piece.arguments)))
    return deltas


def new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"
