"""The answers of the Messages API, whole and as events."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from specserve.protocols import AnswerCheck
from specserve_server.generation.speculation_metrics import Metrics


class TextBlock(msgspec.Struct, tag="text"):
    text: str


class ThinkingBlock(msgspec.Struct, tag="thinking"):
    """What a model thinks before it answers. `signature` is empty: thoughts are not signed."""

    thinking: str
    signature: str


class ToolUseBlock(msgspec.Struct, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Raw]


class MessageUsage(msgspec.Struct):
    """`input_tokens`: those that the prefix cache did not serve."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    service_tier: Literal["standard"]


class MessageEnd(msgspec.Struct):
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"] | None
    stop_sequence: str | None


class AnthropicMessage(MessageEnd, kw_only=True):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock]
    usage: MessageUsage
    validation: AnswerCheck | UnsetType = UNSET
    metrics: Metrics | UnsetType = UNSET


class MessageStart(msgspec.Struct, tag="message_start"):
    message: AnthropicMessage


class BlockStart(msgspec.Struct, tag="content_block_start"):
    index: int
    content_block: TextBlock | ThinkingBlock | ToolUseBlock


class TextDelta(msgspec.Struct, tag="text_delta"):
    text: str


class ThinkingDelta(msgspec.Struct, tag="thinking_delta"):
    thinking: str


class SignatureDelta(msgspec.Struct, tag="signature_delta"):
    signature: str


class InputDelta(msgspec.Struct, tag="input_json_delta"):
    partial_json: str


class BlockDelta(msgspec.Struct, tag="content_block_delta"):
    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockStop(msgspec.Struct, tag="content_block_stop"):
    index: int


class MessageDelta(msgspec.Struct, tag="message_delta", kw_only=True):
    delta: MessageEnd
    usage: MessageUsage
    validation: AnswerCheck | UnsetType = UNSET
    metrics: Metrics | UnsetType = UNSET


class MessageStop(msgspec.Struct, tag="message_stop"):
    pass


MESSAGE_EVENTS = (MessageStart, BlockStart, BlockDelta, BlockStop, MessageDelta, MessageStop)
