"""Plugins: discovered, checked for compatibility by their declarations, loaded, and called through hooks."""
