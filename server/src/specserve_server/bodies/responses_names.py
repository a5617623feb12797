"""What the Responses API calls fields of a chat body, and which of its own change nothing here. Data only."""

from __future__ import annotations

FIELD_NAMES = {
    "messages": "input",
    "prompt": "input",
    "messages or prompt": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
    "reasoning_effort": "reasoning.effort",
    "system": "instructions",
    "system_prompt": "instructions",
}
IGNORED = frozenset({"max_tool_calls", "stream_options"})
"""No tool is called here, and streams always have the usage."""
