"""The routes of operators and tools: health, models, metrics, tokenization, changes of the running engine."""
