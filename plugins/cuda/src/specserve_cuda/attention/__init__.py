"""Attention backends for CUDA, of which masks of draft trees are a part."""
