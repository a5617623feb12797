"""`specserve bench serve`: a server under load."""
