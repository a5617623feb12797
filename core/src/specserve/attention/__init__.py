"""Attention backends that come with the core."""
