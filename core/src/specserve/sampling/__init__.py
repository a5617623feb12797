"""From logits to tokens: seeds, noise, logits processors, cut-offs and log-probabilities."""
