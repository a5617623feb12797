"""The answers of the Messages API, whole and as events. Their schemas in /openapi.json come from here."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from specserve.protocols import AnswerCheck
from specserve_server.generation.speculation_metrics import Metrics

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class TextBlock(msgspec.Struct, tag="text"):
    text: str


class ThinkingBlock(msgspec.Struct, tag="thinking"):
    """What a model thinks before it answers. `signature` is empty: thoughts are not signed."""

    thinking: str
    signature: str


class ToolUseBlock(msgspec.Struct, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


AnswerBlock: TypeAlias = TextBlock | ThinkingBlock | ToolUseBlock


class MessageUsage(msgspec.Struct, kw_only=True):
    """`input_tokens`: those that the prefix cache did not serve."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    service_tier: Literal["standard"]


class AnthropicMessage(msgspec.Struct, kw_only=True):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnswerBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage
    validation: AnswerCheck | UnsetType = UNSET
    metrics: Metrics | UnsetType = UNSET


class MessageStart(msgspec.Struct):
    type: Literal["message_start"]
    message: AnthropicMessage


class BlockStart(msgspec.Struct):
    type: Literal["content_block_start"]
    index: int
    content_block: AnswerBlock


class TextDelta(msgspec.Struct, tag="text_delta"):
    text: str


class ThinkingDelta(msgspec.Struct, tag="thinking_delta"):
    thinking: str


class SignatureDelta(msgspec.Struct, tag="signature_delta"):
    signature: str


class InputDelta(msgspec.Struct, tag="input_json_delta"):
    partial_json: str


BlockDeltaContent: TypeAlias = TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockDelta(msgspec.Struct):
    type: Literal["content_block_delta"]
    index: int
    delta: BlockDeltaContent


class BlockStop(msgspec.Struct):
    type: Literal["content_block_stop"]
    index: int


class MessageEnd(msgspec.Struct):
    stop_reason: StopReason | None
    stop_sequence: str | None


class MessageDelta(msgspec.Struct):
    type: Literal["message_delta"]
    delta: MessageEnd
    usage: MessageUsage
    validation: AnswerCheck | UnsetType = UNSET
    metrics: Metrics | UnsetType = UNSET


class MessageStop(msgspec.Struct):
    type: Literal["message_stop"]


MessageEvent: TypeAlias = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop
MESSAGE_EVENTS = (MessageStart, BlockStart, BlockDelta, BlockStop, MessageDelta, MessageStop)


class TokenCount(msgspec.Struct):
    input_tokens: int
