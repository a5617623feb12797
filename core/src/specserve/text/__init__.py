"""Text on both sides of the token ids: tokenizing, stop strings, incremental decoding."""
