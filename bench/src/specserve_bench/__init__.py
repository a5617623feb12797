"""`specserve bench`: measures servers of language models, and finds the fastest settings for a model."""
