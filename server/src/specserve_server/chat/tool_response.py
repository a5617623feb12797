"""Chat choices with tool calls, in OpenAI's format, whole and as deltas."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import UNSET

from specserve_server.chat.answer import (
    AnsweredCall,
    AnsweredFunction,
    AnswerMessage,
    CallDelta,
    ChatChoice,
    ChatChunkChoice,
    Delta,
    FunctionDelta,
)
from specserve_server.chat.response import ChatFormatter

if TYPE_CHECKING:
    from specserve_server.chat.answer import ChatFinishReason
    from specserve_server.generation.choices import Choice, CompletionOutput
    from specserve_server.tools.pieces import Parsed
    from specserve_server.tools.reading import CallReading, ToolCallStream


@dataclass(frozen=True)
class ToolFormatter(ChatFormatter):
    """Reads the texts for calls. `is_named`: the request chose the tool, and as in OpenAI's API the text ends then with
    `stop`."""

    reading: CallReading
    is_named: bool
    streams: dict[int, ToolCallStream] = field(default_factory=dict)

    def full_choice(self, choice: Choice, output: CompletionOutput) -> ChatChoice:
        parsed = self.reading.stream().push(output.text, final=True)
        calls: list[AnsweredCall] = []
        for piece in parsed.calls:
            if piece.name is not None:
                calls.append(AnsweredCall(new_call_id(), "function", AnsweredFunction(piece.name, "")))
            calls[-1].function.arguments += piece.arguments
        # Clients send an answer back, and a message has content or calls.
        content = parsed.text if parsed.text or not calls else None
        message = AnswerMessage(role="assistant", content=content, refusal=None, tool_calls=calls or UNSET)
        shown = self.shown_choice(ChatChoice, message, choice, output)
        shown.finish_reason = self.finish_reason(output, bool(calls))
        return shown

    def chunk_choice(self, choice: Choice, output: CompletionOutput, *, first: bool) -> ChatChunkChoice | None:
        stream = self.streams.get(choice.index)
        if stream is None:
            stream = self.streams[choice.index] = self.reading.stream()
        parsed = stream.push(output.text, final=output.finish_reason is not None)
        is_shown = parsed.text or parsed.calls or output.reasoning or output.finish_reason or output.logprobs
        if not is_shown and not self.body.returns_every_token:
            return None
        delta = Delta(role="assistant" if first else UNSET, tool_calls=call_deltas(parsed) or UNSET)
        if parsed.text or (output.finish_reason and not stream.has_calls):
            delta.content = parsed.text
        shown = self.shown_choice(ChatChunkChoice, delta, choice, output)
        shown.finish_reason = self.finish_reason(output, stream.has_calls)
        return shown

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
