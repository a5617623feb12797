"""What the Messages API calls fields of a chat body, and which of its own change nothing here. Data only."""

from __future__ import annotations

FIELD_NAMES = {
    "prompt": "messages",
    "messages or prompt": "messages",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "output_format": "output_config.format",
    "reasoning_effort": "output_config.effort",
    "instructions": "system",
    "system_prompt": "system",
}
IGNORED = frozenset({"betas", "cache_control", "inference_geo", "speed", "stream_options"})
"""Every prefix is cached, there is one place and one speed, and streams always have the usage."""
