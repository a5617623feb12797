"""The HTTP server: OpenAI's completions and chat, models, metrics, health, over an async engine."""
