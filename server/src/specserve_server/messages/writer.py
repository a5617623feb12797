"""The events of a message, and the message itself, in Anthropic's format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from specserve_server.generation.speculation_metrics import figures
from specserve_server.messages.errors import messages_error
from specserve_server.serving.answers import ReasoningPiece
from specserve_server.tools.arguments import INVALID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_checks.json_types import JsonObject
    from specserve_server.errors import ErrorResponse
    from specserve_server.generation.choices import Choice
    from specserve_server.serving.answers import Piece


@dataclass(slots=True)
class MessageWriter:
    """An `AnswerWriter`. `blocks` have their texts in `texts` while they grow; the last one is open."""

    id: str
    model: str
    choice: Choice
    blocks: list[JsonObject] = field(default_factory=list)
    texts: list[list[str]] = field(default_factory=list)

    def begin(self) -> Iterator[JsonObject]:
        yield {"type": "message_start", "message": self.body()}

    def add(self, piece: Piece, /) -> Iterator[JsonObject]:
        if isinstance(piece, str):
            yield from self.open_unless("text", {"type": "text", "text": ""})
            yield self.delta(piece, {"type": "text_delta", "text": piece})
            return
        if isinstance(piece, ReasoningPiece):
            yield from self.open_unless("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            yield self.delta(piece.text, {"type": "thinking_delta", "thinking": piece.text})
            return
        if piece.name is not None:
            yield from self.open({"type": "tool_use", "id": f"toolu_{uuid4().hex}", "name": piece.name, "input": {}})
        if piece.arguments:
            yield self.delta(piece.arguments, {"type": "input_json_delta", "partial_json": piece.arguments})

    def end(self) -> Iterator[JsonObject]:
        yield from self.close()
        ended: JsonObject = {"stop_reason": self.stop_reason(), "stop_sequence": self.stop_sequence()}
        yield {"type": "message_delta", "delta": ended, "usage": self.usage(), **figures(self.choice)}
        yield {"type": "message_stop"}

    def fail(self, error: ErrorResponse, /) -> JsonObject:
        return messages_error(error).body

    def body(self) -> JsonObject:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [whole(block, "".join(texts)) for block, texts in zip(self.blocks, self.texts, strict=True)],
            "stop_reason": self.stop_reason(),
            "stop_sequence": self.stop_sequence(),
            "usage": self.usage(),
            **figures(self.choice),
        }

    def open_unless(self, type: str, block: JsonObject) -> Iterator[JsonObject]:
        """Nothing where the open block has this type."""
        if not self.blocks or self.blocks[-1]["type"] != type:
            yield from self.open(block)

    def open(self, block: JsonObject) -> Iterator[JsonObject]:
        yield from self.close()
        self.blocks.append(block)
        self.texts.append([])
        yield {"type": "content_block_start", "index": len(self.blocks) - 1, "content_block": block}

    def delta(self, text: str, delta: JsonObject) -> JsonObject:
        self.texts[-1].append(text)
        return {"type": "content_block_delta", "index": len(self.blocks) - 1, "delta": delta}

    def close(self) -> Iterator[JsonObject]:
        if self.blocks:
            if self.blocks[-1]["type"] == "thinking":  # clients send only signed thoughts back
                yield self.delta("", {"type": "signature_delta", "signature": ""})
            yield {"type": "content_block_stop", "index": len(self.blocks) - 1}

    def stop_sequence(self) -> str | None:
        reason = self.choice.stop_reason
        return reason if isinstance(reason, str) else None

    def stop_reason(self) -> str | None:
        if self.choice.finish_reason != "stop":
            return "max_tokens" if self.choice.finish_reason == "length" else None
        if self.stop_sequence() is not None:
            return "stop_sequence"
        return "tool_use" if any(block["type"] == "tool_use" for block in self.blocks) else "end_turn"

    def usage(self) -> JsonObject:
        """`input_tokens` are those that the prefix cache did not serve."""
        cached = self.choice.cached_tokens
        return {
            "input_tokens": len(self.choice.request.prompt_token_ids) - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": self.choice.num_tokens,
            "service_tier": "standard",
        }


def whole(block: JsonObject, text: str) -> JsonObject:
    if block["type"] == "tool_use":
        return {**block, "input": input_of(text)}
    return {**block, str(block["type"]): text}


def input_of(text: str) -> JsonObject:
    """The arguments of a call. Those that are no JSON object, such as ones that were cut off, come as the API says that
    clients shall send them back."""
    try:
        found: JsonObject = msgspec.json.decode(text or "{}", type=dict)
    except (msgspec.DecodeError, RecursionError):
        return {INVALID: text}
    return found
