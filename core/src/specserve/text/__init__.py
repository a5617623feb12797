"""Text on both sides of the token ids: tokenizing, chat templates, stop strings, incremental decoding."""
