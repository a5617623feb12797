"""Every limit on what one request may ask for, and nothing else: `engine.admission` and `server` enforce them.

docs/server.md lists them. Limits that follow from the model or the configuration are elsewhere: context length, KV
cache, queue, size of a body.
"""

from __future__ import annotations

from specserve_checks.type_words import VAST

MAX_INT32 = VAST
"""The largest value of whole numbers that have no smaller limit: max_tokens, top_k, token ids, priority."""

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
MAX_DRAFT_TOKENS = 4096
"""The largest `speculation.max_draft_tokens`; the configured max_draft_tokens bounds a draft, too."""

MAX_LOGPROBS = 20
"""The largest `logprobs`, `top_logprobs` and `prompt_logprobs`, unless max_logprobs is configured."""
MAX_CONFIGURED_LOGPROBS = 1000
"""The largest max_logprobs."""
MAX_STOP_STRINGS = 16
MAX_STOP_TOKEN_IDS = 1024
MAX_LOGIT_BIASES = 1024
MAX_STRING_LENGTH = 1024
"""Characters of a stop string or a bad word."""
MAX_BAD_WORDS = 128
MAX_BAD_WORD_SEQUENCES = 2 * MAX_BAD_WORDS
"""The engine takes bad words as token sequences. The server makes two of each: the word at the start of a text and the
word after a space."""

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

MAX_TEMPERATURE = 100.0
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.01, 100.0
MAX_ADDITIVE_PENALTY = 2.0
"""Of presence_penalty and frequency_penalty, which may be negative."""
MAX_LOGIT_BIAS = 100.0
MIN_SEED, MAX_SEED = -(2**63), 2**63 - 1
MAX_DERIVED_SEED = 2**64 - 1
"""Further choices have seeds that `sampling.seeds.choice_seed` derives."""
