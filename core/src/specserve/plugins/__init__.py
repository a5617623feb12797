"""Plugins: found, judged by their declarations, loaded, and called through hooks."""
