"""OpenAI's completions: prompts, echoes and choices."""
