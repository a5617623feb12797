"""Names within fields of bodies that the APIs or other clients define and that change no answer here. Data only.

What the Structs of the bodies have is served; what neither they nor this page has is refused by a strict server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_server.bodies.messages import Block, ClientTool, OutputConfig, Thinking
from specserve_server.bodies.requests import ContentPart, Message, StreamOptions
from specserve_server.bodies.responses import (
    ITEM_TYPES,
    REASONING_PARTS,
    TEXT_PARTS,
    TOOL_TYPES,
    FunctionChoice,
    FunctionTool,
    InputItem,
    InputPart,
    Reasoning,
)
from specserve_server.bodies.tools import Tool, ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

CACHING = ("cache_control", "prompt_cache_breakpoint")
"""Every prefix is cached anyway."""
OF_CALLERS = ("allowed_callers", "defer_loading", "async", "eager_input_streaming")
"""The client calls the tools itself, and every tool is in the prompt."""
EXTENSIONS = ("provider_specific_fields", "extra_content")
"""What other servers add to their answers, and clients send back."""

IGNORED_WITHIN: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    StreamOptions: ("include_obfuscation",),
    Message: ("annotations", *CACHING, *EXTENSIONS),
    ContentPart: CACHING,
    Tool: CACHING,
    ToolCall: ("index", *CACHING, *EXTENSIONS),
    Block: ("citations", "signature", "data", "caller", "toolset_name", *CACHING),
    ClientTool: (*OF_CALLERS, *CACHING),
    Thinking: ("budget_tokens", "display", "block_binding"),
    OutputConfig: ("task_budget",),
    InputPart: ("annotations", "logprobs", *CACHING),
    InputItem: ("status", "phase", "async", "caller", "encrypted_content", *EXTENSIONS),
    FunctionTool: (*OF_CALLERS, "output_schema", *CACHING),
    Reasoning: ("summary", "generate_summary", "context", "mode"),
}
SERVED_TYPES: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    ContentPart: ("text",),
    Block: ("text", "thinking", "redacted_thinking", "tool_use", "tool_result", "tool_reference"),
    ClientTool: ("custom",),
    InputPart: (*TEXT_PARTS, *REASONING_PARTS, "summary_text"),
    InputItem: ITEM_TYPES,
    FunctionTool: TOOL_TYPES,
    FunctionChoice: ("function", "custom"),
}
"""Objects of other types have names of their own. They are refused, or left out, by their type."""
