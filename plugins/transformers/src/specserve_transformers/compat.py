"""What transformers declares. Imports nothing heavy: `specserve plugins explain` reads it."""

ADDED = "causal language models whose class in transformers calls its attention interface"
