"""POST /v1/responses: OpenAI's Responses API, translated to a chat; and the store of its responses."""
