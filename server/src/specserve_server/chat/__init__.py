"""OpenAI's chat completions: messages, prompts, tools and choices."""
