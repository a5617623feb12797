"""`specserve bench sweep`: every setting of a model under every load, and which of them to use."""
