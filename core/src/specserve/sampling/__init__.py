"""From logits to target tokens: seeds, noise, cut-offs, logits processors, the torch sampler."""
