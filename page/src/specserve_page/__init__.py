"""The playground at /: static files, and the routes that serve them. Imports nothing of specserve."""
