"""Every limit on what the engine takes of one request, and nothing else: `engine.admission` enforces them.

docs/server.md lists them. Limits that follow from the model or the configuration are elsewhere: context length, KV
cache, queue.
"""

from __future__ import annotations

from specserve_checks.type_words import VAST

MAX_INT32 = VAST
"""The largest value of whole numbers that have no smaller limit: max_tokens, top_k, token ids, priority."""

MAX_DRAFT_TOKENS = 4096
"""The largest `speculation.max_draft_tokens`; the configured max_draft_tokens bounds a draft, too."""
MAX_DRAFTERS = 64
"""Names in `speculation.drafters`."""

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

MAX_TEMPERATURE = 100.0
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.01, 100.0
MAX_ADDITIVE_PENALTY = 2.0
"""Of presence_penalty and frequency_penalty, which may be negative."""
MAX_LOGIT_BIAS = 100.0
MIN_SEED, MAX_SEED = -(2**63), 2**63 - 1
MAX_DERIVED_SEED = 2**64 - 1
"""Further choices have seeds that `sampling.seeds.choice_seed` derives."""
