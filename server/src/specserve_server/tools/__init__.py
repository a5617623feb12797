"""Tools of chat completions: what may be called, how a model writes a call, and calls in responses."""
