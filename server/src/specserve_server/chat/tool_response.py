"""Chat choices with tool calls, in OpenAI's format, whole and as deltas."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specserve_server.chat.response import reasoning_fields

if TYPE_CHECKING:
    from specserve_checks.json_types import JsonObject
    from specserve_server.chat.response import ChatFormatter
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

    def full_choice(self, choice: Choice, output: CompletionOutput) -> JsonObject:
        parsed = self.reading.stream().push(output.text, final=True)
        calls: list[dict[str, str]] = []
        for piece in parsed.calls:
            if piece.name is not None:
                calls.append({"name": piece.name, "arguments": ""})
            calls[-1]["arguments"] += piece.arguments
        whole = self.chat.full_choice(choice, output)
        message: JsonObject = {"role": "assistant", "content": None, "refusal": None}
        message |= reasoning_fields(output)
        if parsed.text or not calls:  # clients send an answer back, and a message has content or calls
            message["content"] = parsed.text
        if calls:
            message["tool_calls"] = [{"id": new_call_id(), "type": "function", "function": call} for call in calls]
        return {**whole, "message": message, "finish_reason": self.finish_reason(output, bool(calls))}

    def chunk_choice(self, choice: Choice, output: CompletionOutput, *, first: bool) -> JsonObject | None:
        stream = self.streams.get(choice.index)
        if stream is None:
            stream = self.streams[choice.index] = self.reading.stream()
        parsed = stream.push(output.text, final=output.finish_reason is not None)
        shown = parsed.text or parsed.calls or output.reasoning or output.finish_reason or output.logprobs
        if not shown and not self.chat.body.return_token_ids:
            return None
        delta: JsonObject = {"role": "assistant"} if first else {}
        if parsed.text or (output.finish_reason and not stream.has_calls):
            delta["content"] = parsed.text
        delta |= reasoning_fields(output)
        reason = self.finish_reason(output, stream.has_calls)
        fields = {**self.chat.other_fields(choice, output), "finish_reason": reason}
        return {"index": choice.index, "delta": {**delta, **call_deltas(parsed)}, **fields}

    def finish_reason(self, output: CompletionOutput, has_calls: bool) -> str | None:
        is_call = has_calls and not self.is_named and output.finish_reason == "stop"
        return "tool_calls" if is_call else output.finish_reason

    def extra_fields(self, choice: Choice, /) -> JsonObject:
        return self.chat.extra_fields(choice)


def call_deltas(parsed: Parsed) -> JsonObject:
    deltas: list[JsonObject] = []
    for piece in parsed.calls:
        if piece.name is not None:
            named: JsonObject = {"name": piece.name, "arguments": piece.arguments}
            deltas.append({"index": piece.index, "id": new_call_id(), "type": "function", "function": named})
        elif deltas and deltas[-1]["index"] == piece.index:
            function = deltas[-1]["function"]
            assert isinstance(function, dict)
            function["arguments"] += piece.arguments
        else:
            deltas.append({"index": piece.index, "function": {"arguments": piece.arguments}})
    return {"tool_calls": deltas} if deltas else {}


def new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"
