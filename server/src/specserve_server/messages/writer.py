"""From an answer to the events of a message, and to the message itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from specserve_server.generation.speculation_metrics import speculation_metrics
from specserve_server.messages import answer
from specserve_server.messages.errors import messages_error
from specserve_server.serving.answers import ReasoningPiece
from specserve_server.tools.arguments import INVALID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_server.errors import ErrorResponse
    from specserve_server.generation.choices import Choice
    from specserve_server.messages.errors import MessagesErrorBody
    from specserve_server.serving.answers import Piece


@dataclass(slots=True)
class MessageWriter:
    """An `AnswerWriter`. `blocks` have their texts in `texts` while they grow; the last one is open."""

    id: str
    model: str
    choice: Choice
    blocks: list[answer.AnswerBlock] = field(default_factory=list)
    texts: list[list[str]] = field(default_factory=list)

    def begin(self) -> Iterator[answer.MessageEvent]:
        yield answer.MessageStart("message_start", self.body())

    def add(self, piece: Piece, /) -> Iterator[answer.MessageEvent]:
        if isinstance(piece, str):
            yield from self.open_unless_open(answer.TextBlock(""))
            yield self.delta(piece, answer.TextDelta(piece))
            return
        if isinstance(piece, ReasoningPiece):
            yield from self.open_unless_open(answer.ThinkingBlock("", ""))
            yield self.delta(piece.text, answer.ThinkingDelta(piece.text))
            return
        if piece.name is not None:
            yield from self.open(answer.ToolUseBlock(f"toolu_{uuid4().hex}", piece.name, {}))
        if piece.arguments:
            yield self.delta(piece.arguments, answer.InputDelta(piece.arguments))

    def end(self) -> Iterator[answer.MessageEvent]:
        yield from self.close()
        ended, metrics = answer.MessageEnd(self.stop_reason(), self.stop_sequence()), speculation_metrics([self.choice])
        yield answer.MessageDelta("message_delta", ended, self.usage(), self.choice.check, metrics)
        yield answer.MessageStop("message_stop")

    def fail(self, error: ErrorResponse, /) -> MessagesErrorBody:
        return messages_error(error)

    def body(self) -> answer.AnthropicMessage:
        return answer.AnthropicMessage(
            id=self.id,
            type="message",
            role="assistant",
            model=self.model,
            content=[whole(block, "".join(texts)) for block, texts in zip(self.blocks, self.texts, strict=True)],
            stop_reason=self.stop_reason(),
            stop_sequence=self.stop_sequence(),
            usage=self.usage(),
            validation=self.choice.check,
            metrics=speculation_metrics([self.choice]),
        )

    def open_unless_open(self, block: answer.TextBlock | answer.ThinkingBlock) -> Iterator[answer.MessageEvent]:
        """Nothing where the open block is of this kind."""
        if not self.blocks or type(self.blocks[-1]) is not type(block):
            yield from self.open(block)

    def open(self, block: answer.AnswerBlock) -> Iterator[answer.MessageEvent]:
        yield from self.close()
        self.blocks.append(block)
        self.texts.append([])
        yield answer.BlockStart("content_block_start", len(self.blocks) - 1, block)

    def delta(self, text: str, delta: answer.BlockDeltaContent) -> answer.BlockDelta:
        self.texts[-1].append(text)
        return answer.BlockDelta("content_block_delta", len(self.blocks) - 1, delta)

    def close(self) -> Iterator[answer.MessageEvent]:
        if self.blocks:
            if isinstance(self.blocks[-1], answer.ThinkingBlock):  # clients send only signed thoughts back
                yield self.delta("", answer.SignatureDelta(""))
            yield answer.BlockStop("content_block_stop", len(self.blocks) - 1)

    def stop_sequence(self) -> str | None:
        reason = self.choice.stop_reason
        return reason if isinstance(reason, str) else None

    def stop_reason(self) -> answer.StopReason | None:
        if self.choice.finish_reason != "stop":
            return "max_tokens" if self.choice.finish_reason == "length" else None
        if self.stop_sequence() is not None:
            return "stop_sequence"
        return "tool_use" if any(isinstance(block, answer.ToolUseBlock) for block in self.blocks) else "end_turn"

    def usage(self) -> answer.MessageUsage:
        cached = self.choice.cached_tokens
        return answer.MessageUsage(
            input_tokens=len(self.choice.request.prompt_token_ids) - cached,
            cache_creation_input_tokens=0,
            cache_read_input_tokens=cached,
            output_tokens=self.choice.num_tokens,
            service_tier="standard",
        )


def whole(block: answer.AnswerBlock, text: str) -> answer.AnswerBlock:
    if isinstance(block, answer.ToolUseBlock):
        return answer.ToolUseBlock(block.id, block.name, input_of(text))
    return answer.TextBlock(text) if isinstance(block, answer.TextBlock) else answer.ThinkingBlock(text, "")


def input_of(text: str) -> dict[str, Any]:
    """The arguments of a call. Those that are no JSON object, such as ones that were cut off, come as the API says that
    clients shall send them back."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {INVALID: text}
