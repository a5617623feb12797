"""Every limit on the body of one request that the engine does not have, and nothing else.

docs/server.md lists them. The size of a body is configured.
"""

from __future__ import annotations

MAX_N = 128
MAX_PROMPTS = 1024
MAX_SEQUENCES = MAX_PROMPTS
"""Prompts times n."""
MAX_MESSAGES = 4096
MAX_DOCUMENTS = 1024
MAX_TEMPLATE_KWARGS_BYTES = 65536
"""The size of `chat_template_kwargs` as JSON."""
MAX_TEMPLATE_KWARGS_DEPTH = 16
MAX_BODY_VALUES = 200_000
"""Strings of a body, keys among them; also its lists and objects."""
MAX_BODY_DEPTH = 500
"""Lists and objects within each other. Up to here every body is read; one that is deeper may be refused."""
MAX_CACHE_SALT_LENGTH = 256
MAX_REQUEST_ID_LENGTH = 256

MAX_CHOICES = 4096
"""Of structured output."""
MAX_TOOLS = 128
MAX_TOOL_CALLS = 128
"""Of one message."""

MAX_METADATA = 16
MAX_METADATA_KEY, MAX_METADATA_VALUE = 64, 512
"""Of a response: pairs, and characters of each."""
MAX_STORED_RESPONSES = 1024
MAX_STORED_BYTES = 64 * 2**20
"""Of all responses that are kept; the oldest are dropped."""
